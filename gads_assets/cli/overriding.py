"""What an operator does to partitions: the plan first, then the confirmation, then all of it or nothing."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from ulid import ULID

from gads_assets.cli.choosing import (
    Asked,
    CustomersOnRecordOption,
    DayOption,
    ErrorClassOption,
    FirstDayOption,
    LastDayOption,
    QueriesOption,
    StatusesOption,
    choose,
    read_asked,
)
from gads_assets.cli.confirming import (
    DryRunOption,
    ExpectOption,
    ReasonOption,
    YesOption,
    acting_user,
    confirm,
    read_reason,
    require_both,
    require_expected,
)
from gads_assets.cli.output import (
    Column,
    JsonOption,
    facts,
    messages,
    number_of,
    print_json,
    print_listing,
    say,
)
from gads_assets.cli.telling import name_of, scope_of, told_key
from gads_assets.cli.usage import wrong_usage
from gads_assets.domain.accounts import Account
from gads_assets.domain.desk import Action, DeskRow, PartitionChoice, Plan, plan_action, refuse_also
from gads_assets.domain.keys import CustomerId, PartitionKey
from gads_assets.domain.roles import Role
from gads_assets.errors import ActionRefusedError
from gads_assets.settings import read_settings

if TYPE_CHECKING:
    from gads_assets.orchestration.workplace import Workplace

_NAMED: Final = 3
_REASONS_SHOWN: Final = 5
_NUMBER: Final = Column(name="partitions", is_number=True)

_DAEMON: Final = (
    "Dagster's daemon runs what is due within a minute, and `make ui` or `dagster-daemon run` starts one; "
    "`gads state inspect` shows what came of it"
)
_DONE: Final = {
    Action.RETRY: f"due to be extracted again: {{}}; {_DAEMON}",
    Action.REVALIDATE: f"due to be judged again: {{}}; {_DAEMON}",
    Action.MARK: "terminal now: {}; nothing is tried until `gads state terminal clear` or `gads state retry`",
    Action.CLEAR: f"not terminal any more, and due to be tried: {{}}; {_DAEMON}",
}
_NAMES: Final = {
    Action.RETRY: "retry",
    Action.REVALIDATE: "revalidate",
    Action.MARK: "mark terminal",
    Action.CLEAR: "clear terminal",
}

HELP: Final = {
    Action.RETRY: "Extract partitions again, whatever their state.\n\n"
    "A failure becomes pending; a success stays until a new run is good. Attempts count anew. At least one option must "
    "say which partitions. The plan is shown before anything changes, and each override is logged with who, when and "
    "why. Partitions that a run has are refused.",
    Action.REVALIDATE: "Judge the newest sealed run of partitions again; nothing is asked of the API.\n\n"
    "Refused are partitions of which the raw sink has no sealed run. All else is as with `gads state retry`.",
    Action.MARK: "Mark partitions as terminal: nothing tries them again until they are cleared.\n\n"
    "Successes are refused, unless their further tries were given up. All else is as with `gads state retry`.",
    Action.CLEAR: "Clear terminal partitions, whether marked or out of attempts: they are due again.\n\n"
    "Attempts count anew. All else is as with `gads state retry`.",
}


def override_command(action: Action) -> Callable[..., None]:
    """For Typer: the four differ in what they do, and in nothing that can be given to them."""

    def command(
        *,
        queries: QueriesOption = None,
        customer_ids: CustomersOnRecordOption = None,
        day: DayOption = None,
        first: FirstDayOption = None,
        last: LastDayOption = None,
        statuses: StatusesOption = None,
        error_class: ErrorClassOption = None,
        reason: ReasonOption = None,
        yes: YesOption = False,
        expect: ExpectOption = None,
        dry_run: DryRunOption = False,
        as_json: JsonOption = False,
    ) -> None:
        asked = read_asked(
            queries=queries,
            customer_ids=customer_ids,
            day=day,
            first=first,
            last=last,
            error_class=error_class,
            statuses=statuses,
            now=datetime.now(UTC),
        )
        if asked.is_empty:
            wrong_usage(
                "nothing says which partitions; give at least one of --query, --customer-id, --logical-date, --from, "
                "--to, --status and --error-class"
            )
        require_both(yes=yes, expect=expect)
        why = read_reason(reason, dry_run=dry_run)
        _override(action, asked, reason=why, yes=yes, expect=expect, dry_run=dry_run, as_json=as_json)

    return command


def _override(
    action: Action, asked: Asked, *, reason: str, yes: bool, expect: int | None, dry_run: bool, as_json: bool
) -> None:
    from gads_assets.orchestration.workplace import Workplace  # noqa: PLC0415

    with Workplace(read_settings(os.environ)) as here:
        choice = choose(here, asked)
        plan = _plan(here, action, choice)
        # With --json standard output is the document's, and only who is asked needs the plan before.
        if not as_json:
            _show(plan, facts())
        elif not (yes or dry_run):
            _show(plan, messages)
        if dry_run and (plan.changed or plan.refused):
            require_expected(len(plan.changed), expect)
            if as_json:
                print_json(_document(plan, dry_run=True))
            say("nothing was changed: this was a rehearsal")
            return
        _require_any(here, plan, choice)
        confirm(
            len(plan.changed),
            verb="Change",
            name=_only(plan.changed),
            above=here.settings.confirm_above,
            yes=yes,
            expect=expect,
        )
        here.desk.carry_out(
            plan,
            actor=acting_user(),
            reason=reason,
            now=here.schedule_as(Role.OPERATOR).clock(),
            new_override_id=lambda: str(ULID()),
        )
    # First, so that it is told also where the document cannot be written.
    say(_DONE[action].format(_which(plan.changed)))
    if as_json:
        print_json(_document(plan, dry_run=False))


def _plan(here: "Workplace", action: Action, choice: PartitionChoice) -> Plan:
    plan = plan_action(action, here.desk.rows(choice))
    if action is not Action.MARK:
        accounts = here.customers_as(Role.OPERATOR).customers(with_closed=True)
        plan = refuse_also(plan, _without_account(plan.changed, accounts, asks_api=action is not Action.REVALIDATE))
    if action is Action.REVALIDATE:
        plan = refuse_also(plan, _without_sealed_run(here, plan.changed))
    return plan


def _without_account(
    rows: Iterable[DeskRow], accounts: Iterable[Account], *, asks_api: bool
) -> dict[PartitionKey, str]:
    """What no run would come for, or would ask the API for in vain."""
    known = {account.customer_id: account for account in accounts}

    def why_not(customer_id: CustomerId) -> str | None:
        account = known.get(customer_id)
        if account is None:
            return f"customer {customer_id} is not registered; `gads customers sync` registers it"
        if asks_api and not account.is_active:
            return (
                f"account {customer_id} is closed ({account.closed_reason}); `gads customers sync` reopens it once it "
                "is enabled again"
            )
        return None

    return {row.key: reason for row in rows if (reason := why_not(row.key.customer_id))}


def _without_sealed_run(here: "Workplace", rows: Sequence[DeskRow]) -> dict[PartitionKey, str]:
    """The ledger may remember a run that the raw sink has lost."""
    keys = [row.key for row in rows]
    found = here.sink.for_each(here.sink.sealed_runs, keys)
    reason = "the raw sink has no sealed run of it; retry it instead"
    return {key: reason for key, runs in zip(keys, found, strict=True) if not runs}


def _require_any(here: "Workplace", plan: Plan, choice: PartitionChoice) -> None:
    if plan.changed:
        return
    if plan.refused:
        reasons = Counter(reason for _, reason in plan.refused)
        [(reason, count)] = reasons.most_common(1)
        of_them = "" if len(reasons) == 1 else f", {count} of them since"
        first = next(row.key for row, its_reason in plan.refused if its_reason == reason)
        if len(plan.refused) == 1:
            raise ActionRefusedError(f"nothing was changed: {first} is refused: {reason}")
        raise ActionRefusedError(
            f"nothing was changed: of {len(plan.refused)} partitions each is refused{of_them}: {reason} ({first})"
        )
    anything = PartitionChoice(
        queries=choice.queries, customer_ids=choice.customer_ids, first=choice.first, last=choice.last
    )
    if (choice.error_class or choice.statuses) and here.desk.rows(anything, most=1):
        asked = [f"status {', '.join(choice.statuses)}"] if choice.statuses else []
        asked += [f"error class {choice.error_class}"] if choice.error_class else []
        raise ActionRefusedError(
            f"no partition of this selection has {' and '.join(asked)} now; `gads state inspect` shows what they have"
        )
    raise ActionRefusedError(
        "nothing of this selection was ever tried or scheduled, so there is nothing to override; a first extraction is "
        "`gads backfill`"
    )


def _show(plan: Plan, console: Console) -> None:
    console.print(f"{_NAMES[plan.action]}: {len(plan.changed)} to change, {len(plan.refused)} refused", markup=False)
    if plan.changed:
        console.print(scope_of([row.key for row in plan.changed]), soft_wrap=True, markup=False)
        print_listing(
            None,
            [*(Column(name=name) for name in ("query", "status", "last error")), _NUMBER],
            [(*kind, number) for kind, number in _counts(plan.changed)],
            console=console,
        )
    if plan.refused:
        shown = _by_reason(plan.refused)
        rows: list[tuple[object, ...]] = [
            (len(keys), reason, _first_of(keys)) for reason, keys in shown[:_REASONS_SHOWN]
        ]
        if len(shown) > _REASONS_SHOWN:
            rows.append((sum(len(keys) for _, keys in shown[_REASONS_SHOWN:]), "for other reasons", ""))
        columns = [
            Column(name="refused", is_number=True),
            Column(name="why", room=36),
            Column(name="for example", room=36),
        ]
        print_listing(None, columns, rows, console=console)


def _counts(rows: Iterable[DeskRow]) -> list[tuple[tuple[str, str, str], int]]:
    counted = Counter((row.key.query_name, str(row.status), row.error_class or "") for row in rows)
    return sorted(counted.items())


def _by_reason(refused: Sequence[tuple[DeskRow, str]]) -> list[tuple[str, list[PartitionKey]]]:
    """The most frequent first."""
    found: dict[str, list[PartitionKey]] = {}
    for row, reason in refused:
        found.setdefault(reason, []).append(row.key)
    return sorted(found.items(), key=lambda each: -len(each[1]))


def _first_of(keys: Sequence[PartitionKey]) -> str:
    named = ", ".join(map(name_of, keys[:_NAMED]))
    return f"{named}, …" if len(keys) > _NAMED else named


def _document(plan: Plan, *, dry_run: bool) -> dict[str, Any]:
    def told(row: DeskRow) -> dict[str, Any]:
        return {**told_key(row.key), "status": row.status, "error_class": row.error_class}

    return {
        "action": plan.action,
        "dry_run": dry_run,
        "counts": [
            {"query": query, "status": status, "error_class": error_class or None, "partitions": number}
            for (query, status, error_class), number in _counts(plan.changed)
        ],
        "changed": [told(row) for row in plan.changed],
        "refused": [{**told(row), "reason": reason} for row, reason in plan.refused],
    }


def _which(rows: Sequence[DeskRow]) -> str:
    return _only(rows) or number_of(len(rows), "partition")


def _only(rows: Sequence[DeskRow]) -> str | None:
    """What the only one is called."""
    return name_of(rows[0].key) if len(rows) == 1 else None
