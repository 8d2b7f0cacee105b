"""Materializations as OpenLineage events, posted one by one. Only here is dagster-openlineage known, an extra."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, uuid5

import dagster as dg
from dagster_openlineage import OpenLineageAdapter
from openlineage.client.event_v2 import RunEvent
from openlineage.client.facet_v2 import parent_run, tags_run
from openlineage.client.transport.http import HttpConfig, HttpTransport

from gads_assets.errors import LineageError
from gads_assets.orchestration.lineage import LineageBackend, Tell

_PATIENCE_SECONDS: Final = 5.0
_CODE_VERSION: Final = "dagster/code_version"
_TOLD: Final = ("run_id", "schema_version")
"""What a materialization says of the extraction that its rows are of."""


class _Kept:
    """In the place of the package's emitter, which swallows every failure."""

    def __init__(self) -> None:
        self.events: list[RunEvent] = []

    def emit(self, event: RunEvent) -> None:
        self.events.append(event)


class LineageEvents:
    """What is known of the assets: the edges and the columns, which no event of the log has."""

    def __init__(self, namespace: str, assets: Sequence[dg.AssetsDefinition]) -> None:
        self._namespace = namespace
        self._specs = {spec.key: spec for each in assets for spec in each.specs}
        self._kept = _Kept()
        self._adapter = OpenLineageAdapter(namespace=namespace, emitter=self._kept)

    def event_of(self, record: dg.EventLogRecord) -> RunEvent | None:
        """None for an asset of another code location. However often it is made, it is the same."""
        made = record.asset_materialization
        spec = self._specs.get(made.asset_key) if made else None
        if made is None or spec is None:
            return None
        entry = record.event_log_entry
        # The columns are those of today's definition; what an earlier one made had perhaps others.
        is_todays = (made.tags or {}).get(_CODE_VERSION) == spec.code_version
        self._adapter.asset_materialization(
            made.asset_key,
            # A run of its own: all partitions of a Dagster run would pass for one that is completed again and again.
            str(uuid5(NAMESPACE_URL, f"{self._namespace}/{entry.run_id}/{record.storage_id}")),
            entry.timestamp,
            metadata={**(spec.metadata if is_todays else {}), **made.metadata},
            upstream_asset_keys=[dep.asset_key for dep in spec.deps],
            partition_key=made.partition,
        )
        event = self._kept.events.pop()
        facets = event.run.facets = event.run.facets or {}
        if entry.run_id:  # there is none where somebody reported the materialization by hand
            facets["parent"] = parent_run.ParentRunFacet(
                run=parent_run.Run(runId=entry.run_id),
                job=parent_run.Job(namespace=self._namespace, name=entry.job_name or ""),
            )
        said = {name: str(made.metadata[name].value) for name in _TOLD if name in made.metadata}
        tags = {"partition": made.partition, **said} if made.partition else said
        facets["tags"] = tags_run.TagsRunFacet(
            tags=[tags_run.TagsRunFacetFields(key=key, value=value, source="DAGSTER") for key, value in tags.items()]
        )
        return event


@contextmanager
def telling(backend: LineageBackend, assets: Sequence[dg.AssetsDefinition]) -> Iterator[Tell]:
    """On one connection. Not by the library's client, which drops what a file in the current folder filters, and adds
    what it finds in git and in the environment."""
    events = LineageEvents(backend.namespace, assets)
    transport = HttpTransport(_configuration(backend.url))
    transport.session.max_redirects = 0  # a post that is sent on elsewhere arrives as a GET, and passes for delivered

    def tell(record: dg.EventLogRecord) -> bool:
        event = events.event_of(record)
        if event is None:
            return False
        _post(transport, event)
        return True

    try:
        yield tell
    finally:
        transport.close()


def _configuration(url: str) -> HttpConfig:
    parts = urlsplit(url)
    # Given a path, the library would replace the end of it by its own.
    endpoint = "" if parts.path.strip("/") or parts.query else HttpConfig(url="").endpoint
    return HttpConfig(url=url, endpoint=endpoint, timeout=_PATIENCE_SECONDS, retry={"total": 0})


def _post(transport: HttpTransport, event: RunEvent) -> None:
    """The library's messages have the whole address in them, which may hold a token: ours have its host alone."""
    host = urlsplit(transport.url).hostname
    try:
        status = transport.emit(event).status_code
    except (OSError, ValueError) as error:
        answer = getattr(error, "response", None)
        if answer is None:
            reason = type(error).__name__
            raise LineageError(
                f"the OpenLineage backend at {host} does not answer ({reason}); the rest waits until it does"
            ) from None
        status = answer.status_code
    if not 200 <= status < 300:
        raise LineageError(f"the OpenLineage backend at {host} answered {status}; the rest waits until it takes them")
