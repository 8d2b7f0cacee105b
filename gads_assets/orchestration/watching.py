"""The sensor that looks for what all else has missed: days that are late, and conditions to alert somebody of."""

import os
from collections.abc import Callable
from datetime import UTC, timedelta
from functools import partial
from typing import Final

import dagster as dg
from ulid import ULID

from gads_assets.catalog.specification import Catalog
from gads_assets.control.webhook import post_alerts
from gads_assets.domain.alerting import Condition
from gads_assets.domain.roles import Role
from gads_assets.domain.scheduling import Purpose
from gads_assets.errors import AlertError, GadsError
from gads_assets.orchestration.conditions import is_missing, is_there, key_of, stale_conditions
from gads_assets.orchestration.keys import assets_of_queries
from gads_assets.orchestration.status import StatusDesk
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import read_settings
from gads_assets.status.deriving import Selection
from gads_assets.status.tracking import AssetKind

_MISSING_SINCE: Final = timedelta(days=14)
"""A day that is missing is found while it is young; an older one is history, which somebody asks for."""
_MOST: Final = 50_000
_MOST_TOLD: Final = 500


def watch_sensor(catalog: Catalog) -> dg.SensorDefinition:
    @dg.sensor(
        name=f"{catalog.source}_watch",
        asset_selection=assets_of_queries(catalog),
        minimum_interval_seconds=300,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Schedules days that are late and that nothing else has scheduled, and tells the webhook in "
        "GADS_ALERT_WEBHOOK, once each, of partitions that are terminal, blocked, or stale beyond their query's limit.",
    )
    def watch(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        try:
            with Workplace(read_settings(os.environ)) as here:
                desk = StatusDesk(here, context.instance)
                # Alerts are told all the same: they may be of what keeps the status from being folded.
                late = _unless_refused(lambda: schedule_late(here, desk))
                told = _unless_refused(lambda: tell_alerts(here, desk))
        except GadsError as error:
            return dg.SkipReason(str(error))
        return dg.SkipReason(f"{late}; {told}")

    return watch


def _unless_refused(do: Callable[[], str]) -> str:
    try:
        return do()
    except GadsError as error:
        return str(error)


def schedule_late(here: Workplace, desk: StatusDesk) -> str:
    """Days whose deadline has passed without an extraction, and published ones that were due to be asked for again:
    unless they are scheduled already, failed, or from before their account was registered.

    A snapshot that was missed is among them: its try asks nothing of the API, and puts on record that the day stays
    without it, so that somebody hears of it and can mark it.
    """
    desk.folder.fold(desk.log)
    schedule = here.schedule_as(Role.OPERATOR)
    now = schedule.clock()
    raw = [asset for asset in desk.assets if asset.kind is AssetKind.RAW]
    missing = Selection(assets=raw, first=(now - _MISSING_SINCE).astimezone(UTC).date())
    late = sum(
        schedule.schedule_wanted(
            [key_of(row, desk.assets, source=here.catalog.source) for row in found],
            purpose=purpose,
            strategy="late",
            reason="its deadline has passed",
            now=now,
        )
        for purpose, selection, wanted in (
            (Purpose.FRESH, missing, is_missing),
            (Purpose.RESTATEMENT, Selection(assets=raw), is_there),
        )
        for found in [desk.statuses.partitions(selection, now=now, wanted=wanted, late_by=now, limit=_MOST)]
    )
    return f"{late} late days were scheduled"


def tell_alerts(here: Workplace, desk: StatusDesk) -> str:
    clock, alerts = here.schedule_as(Role.OPERATOR).clock, here.alerts

    def look() -> list[Condition]:
        return [*alerts.waiting(), *stale_conditions(here, desk.statuses, desk.assets, now=clock())]

    alerts.note(look, now=clock(), new_alert_id=lambda: str(ULID()))
    url = here.settings.alert_webhook
    if url is None:
        return f"{alerts.open()} alerts are open, and GADS_ALERT_WEBHOOK is not set"
    try:
        return f"{alerts.tell(partial(post_alerts, url), now=clock(), most=_MOST_TOLD)} alerts were posted"
    except AlertError as error:
        return str(error)
