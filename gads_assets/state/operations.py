"""The API operations that a day allows, shared by every process that asks the API."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine, text

from gads_assets.domain.quota import QUOTA_ZONE, BudgetStatus, moment_of_reset, next_reset
from gads_assets.errors import StateStoreError
from gads_assets.state.connection import NOW, transaction

# Whoever comes second waits for the row and then counts on from what the first has left.
_TAKE = text(f"""
    WITH asked AS (
        SELECT clock, (
            SELECT paused_until FROM api_pause
            WHERE (origin, token_scope) = (:origin, :token_scope) AND paused_until > clock) AS paused_until
        FROM {NOW} AS clock
    ), taken AS (
        INSERT INTO api_operations AS o (origin, token_scope, day, used)
        SELECT :origin, :token_scope, CAST(clock AT TIME ZONE :zone AS date), :count
        FROM asked WHERE paused_until IS NULL
        ON CONFLICT (origin, token_scope, day) DO UPDATE SET used = o.used + excluded.used
        WHERE coalesce(o.used + excluded.used <= CAST(:allowed AS bigint), true)
        RETURNING o.used
    )
    SELECT clock, paused_until, EXISTS (SELECT FROM taken) AS is_taken FROM asked
""")

_PAUSE = text(f"""
    INSERT INTO api_pause AS p (origin, token_scope, paused_until, reason)
    VALUES (:origin, :token_scope, {NOW} + make_interval(secs => :seconds), :reason)
    ON CONFLICT (origin, token_scope) DO UPDATE SET paused_until = excluded.paused_until, reason = excluded.reason
    WHERE p.paused_until < excluded.paused_until
""")

_LIFT = text("""
    DELETE FROM api_pause WHERE (origin, token_scope, paused_until) = (:origin, :token_scope, :paused_until)
""")

_STATUS = text(f"""
    SELECT clock, p.paused_until, p.reason, coalesce(o.used, 0) AS used
    FROM {NOW} AS clock
    LEFT JOIN api_operations AS o ON (o.origin, o.token_scope, o.day)
        = (:origin, :token_scope, CAST(clock AT TIME ZONE :zone AS date))
    LEFT JOIN api_pause AS p ON (p.origin, p.token_scope) = (:origin, :token_scope) AND p.paused_until > clock
""")

_LONGEST_PAUSE = 2 * 24 * 3600.0  # a day of operations is shorter: a delay beyond it is a mistake


class OperationsBudget:
    """Counts before the call is made, so that no process can use what another has taken.

    Days and pauses are the database's: a process whose clock is wrong would otherwise find a day on which nothing was
    used, or stop everybody for as long as it is wrong.
    `origin` is the API, `google` or `emulator`; without `allowed` operations are counted and never refused.
    `scope` tells developer tokens apart where one database serves several; it is a name, never the token. `clock` is
    another than the database's, for simulated time.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        origin: str,
        allowed: int | None,
        scope: str = "default",
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        self._engine = engine
        self._allowed = allowed
        self._names = {"origin": origin, "token_scope": scope}
        self._clock = clock

    @property
    def _scope(self) -> dict[str, Any]:
        return {**self._names, "clock": self._clock and self._clock()}

    def take(self, count: int, *, now: datetime) -> datetime | None:
        """None when they were taken. Otherwise nothing was, and the answer is the moment, by the clock of `now`, from
        which it is worth asking again: the end of a pause, or of the day."""
        if count < 1:
            raise ValueError(f"{count} operations cannot be taken; take at least one")
        if self._allowed is not None and count > self._allowed:
            raise StateStoreError(
                f"{count} operations at once are more than the {self._allowed} of a whole day; raise "
                "GADS_API_DAILY_OPERATIONS"
            )
        asked = {**self._scope, "zone": QUOTA_ZONE, "count": count, "allowed": self._allowed}
        with transaction(self._engine) as connection:
            answer = connection.execute(_TAKE, asked).one()
        if answer.is_taken:
            return None
        if answer.paused_until is not None:
            paused_until: datetime = now + (answer.paused_until - answer.clock)
            return paused_until
        return moment_of_reset(now=now, counting_clock=answer.clock)

    def pause(self, *, seconds: float, reason: str) -> None:
        """Nobody takes operations for so long, in this process or another; a pause that lasts longer stays."""
        with transaction(self._engine) as connection:
            connection.execute(_PAUSE, {**self._scope, "seconds": min(seconds, _LONGEST_PAUSE), "reason": reason})

    def lift_pause(self, paused_until: datetime) -> bool:
        """Ends the pause that lasts until then, as `status` showed it; False, and nothing ends, if it is another by
        now or none. Only the operator may."""
        with transaction(self._engine) as connection:
            return connection.execute(_LIFT, {**self._scope, "paused_until": paused_until}).rowcount == 1

    def status(self) -> BudgetStatus:
        """By the database's clock."""
        with transaction(self._engine) as connection:
            row = connection.execute(_STATUS, {**self._scope, "zone": QUOTA_ZONE}).one()
        return BudgetStatus(
            used=row.used,
            allowed=self._allowed,
            resets_at=next_reset(row.clock),
            paused_until=row.paused_until and row.paused_until.astimezone(UTC),
            reason=row.reason,
        )
