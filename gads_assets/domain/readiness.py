"""What a consumer may read, and why not the rest."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from gads_assets.domain.keys import CustomerId, PartitionKey, RunId
from gads_assets.domain.state import DayRange, PartitionState, PartitionStatus


@dataclass(frozen=True, kw_only=True)
class ReadyPartition:
    """Accepted, and not being withdrawn. `run_id` is the one raw run to read; `state_version` rises when it changes."""

    key: PartitionKey
    run_id: RunId
    schema_version: str
    record_count: int
    state_version: int
    updated_at: datetime


@dataclass(frozen=True, kw_only=True)
class WaitingPartition:
    """Not to be read, whatever lies in the raw sink."""

    key: PartitionKey
    status: PartitionStatus
    reason: str


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """Every partition that was asked about, in key order, in one of the two."""

    ready: tuple[ReadyPartition, ...]
    waiting: tuple[WaitingPartition, ...]


def asked_partitions(
    source: str, query_name: str, customers: Collection[CustomerId], days: DayRange
) -> Iterator[PartitionKey]:
    count = (days.last - days.first).days + 1
    for customer_id in sorted(set(customers)):
        for offset in range(count):
            day = days.first + timedelta(days=offset)
            yield PartitionKey(source=source, customer_id=customer_id, query_name=query_name, logical_date=day)


def tell_ready(
    asked: Iterable[PartitionKey], states: Mapping[PartitionKey, PartitionState], demoted: Collection[PartitionKey]
) -> Readiness:
    """`demoted` are those whose accepted run was found bad, while its rows are being withdrawn."""
    ready: list[ReadyPartition] = []
    waiting: list[WaitingPartition] = []
    for key in asked:
        state = states.get(key)
        if (
            state
            and state.status is PartitionStatus.SUCCESS
            and key not in demoted
            and state.current_run_id
            and state.schema_version is not None
            and state.record_count is not None
        ):
            ready.append(
                ReadyPartition(
                    key=key,
                    run_id=state.current_run_id,
                    schema_version=state.schema_version,
                    record_count=state.record_count,
                    state_version=state.version,
                    updated_at=state.updated_at,
                )
            )
        else:
            status = state.status if state else PartitionStatus.PENDING
            waiting.append(WaitingPartition(key=key, status=status, reason=_reason(state)))
    return Readiness(ready=tuple(ready), waiting=tuple(waiting))


def _reason(state: PartitionState | None) -> str:
    if state is None:
        return "no run of it was judged yet"
    if state.status is PartitionStatus.SUCCESS:
        return "its accepted run was found bad, and its rows are being withdrawn"
    return state.error_message or "waits to be tried again"
