"""Ways to use `gads state` and `gads backfill` wrongly: what is given, the exit code, and what the one line says."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gads_assets.domain.accounts import last_complete_day


@dataclass(frozen=True)
class WrongUse:
    arguments: str
    """Words, with ~ for a space within one."""
    code: int
    said: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        return [word.replace("~", " ") for word in self.arguments.split(" ")]


def _refused(arguments: str, *said: str) -> WrongUse:
    return WrongUse(arguments, 1, said)


def _usage(arguments: str, *said: str) -> WrongUse:
    return WrongUse(arguments, 2, said)


_LONG = "x" * 501
_TODAY = last_complete_day(datetime.now(UTC)) + timedelta(days=1)
_HISTORY = "state history --query campaign --customer-id 1234567890"

LOOKING = [
    _refused("state inspect --query campain", "query 'campain' is not in the catalog", "it has account,"),
    _usage("state inspect --query", "--query", "requires"),
    _refused("state inspect --query ';~DROP~TABLE~partition_state;--", "is not in the catalog"),
    _refused("state inspect --customer-id 12", "customer id '12' is not ten digits", "123-456-7890"),
    _refused("state inspect --customer-id 1'~OR~'1'='1", "is not ten digits"),
    _refused("state inspect --customer-id 999-999-9999", "customer 9999999999 is not registered", "customers sync"),
    _refused("state inspect --logical-date yesterday", "day 'yesterday' is not a date", "YYYY-MM-DD"),
    _refused("state inspect --logical-date 2024-02-30", "day '2024-02-30' is not in the calendar"),
    _refused("state inspect --logical-date 2999-01-01", "day 2999-01-01 is in the future", "the last that is over"),
    _refused("state inspect --from 2024-06-02 --to 2024-06-01", "--from 2024-06-02 is after --to 2024-06-01"),
    _usage("state inspect --logical-date 2024-06-01 --from 2024-06-01", "--logical-date", "one or the other"),
    _usage("state inspect --logical-date 2024-06-01 --to 2024-06-01", "--logical-date", "one or the other"),
    _usage("state inspect --status broken", "--status", "'broken' is not one of", "'failed'"),
    _usage("state inspect --error-class oops", "error class 'oops' does not exist", "rejected", "transient"),
    _usage("state inspect --error-class ';~DELETE~FROM~override_log", "does not exist", "quota"),
    _usage("state inspect --limit 0", "--limit", "1"),
    _usage("state inspect --limit many", "--limit 'many' is not a whole number from 1 to 1000000"),
    _usage("state inspect --limit 2.5", "--limit '2.5' is not a whole number"),
    _usage("state inspect --lmit 3", "No such option: --lmit; did you mean --limit?"),
    _usage("state inspect --folder x", "No such option: --folder; see"),
    _usage("state inspect --logical-date 2024-06-01 --logical-date 2024-06-02", "--logical-date is given 2 times"),
    _usage("state inspect --from 2024-06-01 --from=2024-06-01", "--from is given 2 times", "give it once"),
    _usage(f"{_HISTORY} --query ad --logical-date 2024-06-01", "--query is given 2 times", "gads state history --help"),
    _usage("state overrides --by ", "--by is empty"),
    _usage("state overrides --by \x1b[31m", "--by has a character that cannot be printed"),
    _refused("state inspect --customer-id 1-2-3-4-5-6-7-8-90", "is not ten digits"),
    _refused("state inspect --customer-id 12345-67890", "is not ten digits"),
    _refused(f"state inspect --customer-id {_LONG}", f"customer id '{'x' * 40}' is not"),
    _refused(f"state inspect --query {_LONG}", f"query '{'x' * 40}…' is not"),
    _refused(f"state inspect --logical-date {_LONG}", f"day '{'x' * 40}' is not"),
    _usage(f"state inspect --status {_LONG}", f"'{'x' * 40}…' is not one of"),
    _usage(f"state inspect --error-class {_LONG}", f"error class '{'x' * 40}' does not"),
    _usage(f"state inspect --{_LONG}", f"No such option: --{'x' * 40}…"),
    _usage(f"state inspect {_LONG}", f"({'x' * 40}…)"),
    _usage(f"state {_LONG}", f"No such command '{'x' * 40}…'"),
    _refused(f"state inspect --from {_TODAY}", f"day {_TODAY} is not over yet"),
    _usage("state inspect campaign", "campaign"),
    _usage("state look", "No such command 'look'", "gads state --help"),
    _usage(f"{_HISTORY}", "--logical-date is missing", "--customer-id"),
    _usage("state history --query campaign --logical-date 2024-06-01", "--customer-id is missing"),
    _usage("state history --customer-id 1234567890 --logical-date 2024-06-01", "--query is missing"),
    _refused(f"{_HISTORY} --logical-date tomorrow", "day 'tomorrow' is not a date"),
    _refused("state overrides --query nope", "query 'nope' is not in the catalog"),
    _refused("state overrides --customer-id 9999999999", "customer 9999999999 is not registered"),
    _refused("state terminal list --to 2999-12-31", "day 2999-12-31 is in the future"),
]

OVERRIDING = [
    _usage("state retry --reason mended --yes", "nothing says which partitions", "--query"),
    _usage("state revalidate --reason mended", "nothing says which partitions"),
    _usage("state terminal mark --reason gone --yes", "nothing says which partitions"),
    _usage("state terminal clear --reason gone --yes", "nothing says which partitions"),
    _usage("state retry --query campaign --yes", "--reason is missing", "add --reason"),
    _usage("state retry --query campaign --yes --reason ", "--reason is empty"),
    _usage("state retry --query campaign --yes --reason ~~~", "--reason is empty", "why"),
    _usage(f"state retry --query campaign --yes --reason {_LONG}", "501 characters", "500", "shorten"),
    _usage("state retry --query campaign --yes --reason two\nlines", "--reason has a line break", "one line"),
    _usage("state retry --query campaign --yes --reason \udcff", "--reason has", "cannot be printed"),
    _usage("state retry --query campaign --reason mended --expect 3", "--expect", "--yes", "give both"),
    _usage("state retry --query campaign --reason mended --yes --expect -1", "--expect", "1"),
    _usage("state retry --query campaign --reason mended --yes --expect 0", "--expect", "1"),
    _usage(
        "state retry --query campaign --reason mended --yes --expect all",
        "--expect 'all' is not a whole number from 1 on",
    ),
    _usage("state retry --query campaign --reason one --reason two --yes", "--reason is given 2 times"),
    _usage("state terminal mark --query campaign --reason x --reason y --yes", "--reason is given 2 times"),
    _usage("state retry --query campaign --dry-run --reason ~", "--reason is empty"),
    _usage("state retry --dry-run", "nothing says which partitions"),
    _refused("state retry --query ad --dry-run", "ever tried or scheduled"),
    _refused("state retry --query campaign --dry-run --yes --expect 4", "--expect 4 is not", "which is 3"),
    _usage("state retry --query campaign --reason mended --force", "--force"),
    _refused("state retry --query campaign --reason mended", "no terminal to ask on", "repeat with --yes"),
    _refused("state retry --query campaign --reason mended --yes --expect 2", "--expect 2 is not", "--expect 3"),
    _refused("state retry --query campaign --reason mended --yes --expect 4", "--expect 4 is not", "which is 3"),
    _refused("state retry --query account --reason mended --yes", "--yes is not enough", "--yes --expect 60"),
    _refused("state retry --query account --reason mended --yes --expect 59", "--expect 59 is not", "60"),
    _refused("state retry --query account --reason mended", "no terminal", "--yes --expect 60"),
    _refused("state retry --query nope --reason mended --yes", "query 'nope' is not in the catalog"),
    _refused("state retry --customer-id 9999999999 --reason mended --yes", "customer 9999999999 is not registered"),
    _refused("state retry --logical-date 2999-01-01 --reason mended --yes", "is in the future"),
    _refused("state retry --from 2024-06-09 --to 2024-06-01 --reason mended --yes", "give the earlier day first"),
    _usage("state retry --error-class bad --reason mended --yes", "error class 'bad' does not exist", "rejected"),
    _refused("state retry --query ad --reason mended --yes", "ever tried or scheduled", "`gads backfill`"),
    _refused(
        "state retry --query campaign --error-class quota --reason x --yes", "error class quota", "`gads state inspect`"
    ),
    _refused("state retry --query keyword_view --reason mended --yes", "living run has it", "cancel it in Dagster"),
    _refused("state retry --query geographic_view --reason x --yes", "account 3456789012 is closed", "customers sync"),
    _refused("state revalidate --query ad_group --reason x --yes", "no sealed run of it exists", "retry it instead"),
    _refused("state revalidate --query campaign --reason x --yes", "the raw sink has no sealed run", "retry it"),
    _refused("state terminal mark --query conversion --reason x --yes", "it is a success"),
    _refused("state terminal clear --query campaign --reason x --yes", "it is not terminal", "`gads state retry`"),
    _refused("state retry --query keyword_view --reason x --yes", "nothing was changed: google_ads/keyword_view 123"),
    _refused("state terminal clear --query ad_group --reason x --yes", "it is blocked", "`gads state retry`"),
]

BACKFILLING = [
    _usage("backfill", "--from is missing", "--to"),
    _usage("backfill --from 2024-06-01", "--to is missing"),
    _usage("backfill --to 2024-06-01", "--from is missing"),
    _refused("backfill --from 01.06.2024 --to 2024-06-02", "day '01.06.2024' is not a date", "YYYY-MM-DD"),
    _refused("backfill --from 2024-06-31 --to 2024-07-02", "not in the calendar"),
    _refused("backfill --from 2024-06-02 --to 2024-06-01", "give the earlier day first"),
    _refused("backfill --from 2024-06-01 --to 2999-01-01", "--to 2999-01-01 is not open yet", "the last open day"),
    _refused("backfill --from 2024-06-01 --to 9999-12-31", "is not open yet", "the last open day"),
    _refused("backfill --from 2023-12-31 --to 2024-01-05", "before 2024-01-01, the start_date"),
    _refused("backfill --from 0001-01-01 --to 0001-01-02", "before 2024-01-01, the start_date"),
    _refused("backfill --from 2024-06-01 --to 2024-06-02 --query nope", "query 'nope' is not in the catalog"),
    _refused("backfill --from 2024-06-01 --to 2024-06-02 --customer-id 1", "customer id '1' is not ten digits"),
    _refused("backfill --from 2024-06-01 --to 2024-06-02 --customer-id 9999999999", "9999999999 is not registered"),
    _refused("backfill --from 2024-06-01 --to 2024-06-02 --customer-id 3456789012", "is closed since 2024-05-01"),
    _refused("backfill --from 2024-06-01 --to 2024-06-02 --query conversion_action", "conversion_action", "snapshot"),
    _refused("backfill --from 2024-07-01 --to 2024-07-02 --query campaign", "4 partitions wait for a yes", "--yes"),
    _refused("backfill --from 2024-07-01 --to 2024-07-30 --query campaign --yes", "--yes --expect 60"),
    _refused("backfill --from 2024-07-01 --to 2024-07-02 --query campaign --yes --expect 5", "--expect 5 is not"),
    _usage("backfill --from 2024-07-01 --to 2024-07-02 --expect 4", "--expect", "--yes"),
    _usage("backfill --from 2024-07-01 --to 2024-07-02 status", "--from", "status"),
    _usage("backfill --query campaign pause 01", "--query", "pause"),
    _usage("backfill --json status", "--json goes after status: gads backfill status --json"),
    _usage("backfill --yes cancel 01", "--yes goes after cancel"),
    _usage("backfill --from 2024-07-01 --from 2024-07-02 --to 2024-07-03", "--from is given 2 times"),
    _refused("backfill --from 2024-07-01 --to 2024-07-02 --query campaign --dry-run --yes --expect 5", "which is 4"),
    _usage("backfill stop", "No such command 'stop'"),
    _usage("backfill pause", "ID"),
    _refused("backfill pause 01ARZ3NDEKTSV4RRFFQ69G5FAV", "does not exist", "`gads backfill status`"),
    _refused("backfill resume 7ZZ", "backfill 7ZZ does not exist"),
    _refused("backfill cancel ';~DROP~TABLE~backfill", "is not the beginning of a ULID"),
    _refused("backfill cancel %", "is not the beginning of a ULID", "copy it"),
    _refused("backfill status 7ZZ", "backfill 7ZZ does not exist"),
    _usage("backfill status --limit 0", "--limit"),
]
