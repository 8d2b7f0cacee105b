from datetime import date

import pytest

from gads_assets.domain.keys import CustomerId
from gads_assets.emulator.faults import CallFaults, Fault, FaultKind, RowFaults, parse_faults
from gads_assets.errors import SettingsError

BAKERY, BIKES = "2145550101", "3305550102"
JUNE_1 = date(2024, 6, 1)
ONE_DAY = range(JUNE_1.toordinal(), JUNE_1.toordinal() + 1)
NEXT_DAY = range(JUNE_1.toordinal() + 1, JUNE_1.toordinal() + 2)


def test_a_text_names_kind_customer_resource_day_and_amount() -> None:
    assert parse_faults("transient@2145550101/campaign/2024-06-01:2; quota@*/*/* ;") == (
        Fault(
            kind=FaultKind.TRANSIENT,
            customer_id=CustomerId(BAKERY),
            resource="campaign",
            day=JUNE_1,
            amount=2,
        ),
        Fault(kind=FaultKind.QUOTA, customer_id=None, resource=None, day=None, amount=30),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("transient", "write it as"),
        ("transient@2145550101/campaign", "write it as"),
        ("transient@214-555-0101/campaign/*", "write it as"),
        ("transient@*/campaign/*:", "write it as"),
        ("transient@*/campaign/*:two", "write it as"),
        ("flood@*/campaign/*", "unknown kind; use one of transient, midstream_break, quota"),
        ("transient@*/campaign/2024-02-30", "is not in the calendar"),
        ("truncated_day@*/*/*:101", "truncated_day takes up to 100"),
        ("slow_stream:5", "write it as"),
        ("latency", "write it as"),
        ("rows@*/campaign/*:2000001", "rows takes up to 2000000"),
        ("quota@*/campaign/*:1000000", "quota takes up to 999999"),
    ],
)
def test_a_text_that_is_not_a_fault_is_quoted_with_the_fix(text: str, said: str) -> None:
    with pytest.raises(SettingsError) as refusal:
        parse_faults(f"quota@*/*/*;{text}")
    assert repr(text) in str(refusal.value)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_transient_fault_strikes_its_number_of_calls_for_each_customer_and_resource() -> None:
    faults = CallFaults(parse_faults("transient@*/*/*:2"))
    calls = [(BAKERY, "campaign"), (BAKERY, "ad_group"), (BIKES, "campaign")]
    for customer, resource in calls:
        strikes = [faults.strike(customer, resource, ONE_DAY) for _ in range(3)]
        assert strikes == [(FaultKind.TRANSIENT, 0.0), (FaultKind.TRANSIENT, 0.0), None]


def test_a_fault_spares_other_customers_resources_and_days() -> None:
    faults = CallFaults(parse_faults("bad_auth@2145550101/campaign/2024-06-01"))
    assert faults.strike(BIKES, "campaign", ONE_DAY) is None
    assert faults.strike(BAKERY, "ad_group", ONE_DAY) is None
    assert faults.strike(BAKERY, "campaign", NEXT_DAY) is None
    assert faults.strike(BAKERY, "campaign", ONE_DAY) == (FaultKind.BAD_AUTH, 0.0)
    assert faults.strike(BAKERY, "campaign", ONE_DAY) == (FaultKind.BAD_AUTH, 0.0)


def test_quota_refuses_with_the_time_that_is_left_and_then_recovers() -> None:
    now = [100.0]
    faults = CallFaults(parse_faults("quota@*/*/*:60"), clock=lambda: now[0])
    assert faults.strike(BAKERY, "campaign", ONE_DAY) == (FaultKind.QUOTA, 60.0)
    now[0] += 45
    assert faults.strike(BIKES, "campaign", ONE_DAY) == (FaultKind.QUOTA, 15.0)
    now[0] += 15
    assert faults.strike(BAKERY, "campaign", ONE_DAY) is None


def test_faults_of_rows_touch_their_day_only_and_fail_no_call() -> None:
    faults = CallFaults(parse_faults("duplicated_rows@*/campaign/2024-06-01:3"))
    assert faults.strike(BAKERY, "campaign", ONE_DAY) is None
    assert faults.rows_of(BAKERY, "campaign", JUNE_1) == RowFaults(sent_twice=3)
    assert faults.rows_of(BAKERY, "campaign", date(2024, 6, 2)) == RowFaults()
    assert faults.rows_of(BAKERY, "ad_group", JUNE_1) == RowFaults()


def test_a_size_is_the_first_that_is_said_so_that_a_rule_for_all_may_follow_exceptions() -> None:
    faults = CallFaults(parse_faults("rows@*/campaign/2024-06-01:0; rows@*/*/*:2000000"))
    assert faults.strike(BAKERY, "campaign", ONE_DAY) is None
    assert faults.rows_of(BAKERY, "campaign", JUNE_1) == RowFaults(size=0)
    assert faults.rows_of(BAKERY, "campaign", date(2024, 6, 2)) == RowFaults(size=2_000_000)


def test_a_fault_of_one_day_strikes_queries_that_do_not_speak_of_days_too() -> None:
    faults = CallFaults(
        parse_faults("internal@*/conversion_action/2024-06-01; duplicated_rows@*/conversion_action/2024-06-01:2")
    )
    assert faults.strike(BAKERY, "conversion_action", None) == (FaultKind.INTERNAL, 0.0)
    assert faults.strike(BAKERY, "conversion_action", None) is None
    assert faults.rows_of(BAKERY, "conversion_action", None) == RowFaults(sent_twice=2)


def test_an_account_that_is_refused_stays_refused() -> None:
    for kind in (FaultKind.CUSTOMER_NOT_ENABLED, FaultKind.CUSTOMER_SUSPENDED, FaultKind.PERMISSION_DENIED):
        faults = CallFaults(parse_faults(f"{kind.value}@2145550101/*/*"))
        assert [faults.strike(BAKERY, "campaign", ONE_DAY) for _ in range(5)] == [(kind, 0.0)] * 5
        assert faults.strike(BIKES, "campaign", ONE_DAY) is None


def test_delays_add_nothing_to_calls_that_they_do_not_name() -> None:
    faults = CallFaults(parse_faults("latency:50; latency@3305550102/*/*:80; slow_stream@*/campaign/*:3"))
    assert faults.delays(BAKERY, "ad_group", ONE_DAY) == (0.05, 0.0)
    assert faults.delays(BIKES, "campaign", None) == (0.08, 3.0)
    assert faults.strike(BIKES, "campaign", ONE_DAY) is None
