from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gads_assets.domain.pointer import Pointer, PointerStatus
from gads_assets.domain.reconciling import Difference, Rest, compare, is_at_rest, rest_after_comparing
from gads_assets.domain.state import PartitionState, PartitionStatus, Reconcilable
from gads_assets_tests.agreeing import KEY, OTHER_RUN, SHOWN, SUCCESS

FAILED = replace(SUCCESS, status=PartitionStatus.FAILED, error_message="two rows share a key", version=6)
PENDING = replace(SUCCESS, status=PartitionStatus.PENDING, version=7)
HIDDEN = replace(SHOWN, status=PointerStatus.UNAVAILABLE, state_version=5)


def difference(
    state: PartitionState | None,
    pointer: Pointer | None,
    *,
    demoting: bool = False,
    known: bool = True,
    spoke: bool = True,
    adopted: bool = False,
) -> Difference | None:
    entry = Reconcilable(
        state=state,
        is_being_withdrawn=demoting,
        knows_pointer=known,
        spoke_since_pointer=spoke
        and pointer is not None
        and state is not None
        and pointer.state_version < state.version,
        adopted_pointer=adopted,
        version_floor=None,
    )
    return compare({KEY: entry}, {KEY: pointer} if pointer else {}).get(KEY)


@pytest.mark.parametrize(
    ("state", "pointer"),
    [
        (SUCCESS, SHOWN),
        (replace(SUCCESS, version=9), SHOWN),
        (FAILED, HIDDEN),
        (FAILED, None),
        (PENDING, HIDDEN),
    ],
)
def test_what_agrees_is_left_alone(state: PartitionState | None, pointer: Pointer | None) -> None:
    assert difference(state, pointer) is None


@pytest.mark.parametrize(
    "pointer",
    [
        pytest.param(None, id="never loaded"),
        pytest.param(replace(SHOWN, state_version=3, run_id=OTHER_RUN), id="another run"),
        pytest.param(replace(SHOWN, state_version=3, schema_version="2"), id="another schema version"),
        pytest.param(replace(HIDDEN, state_version=3), id="accepted again after a withdrawal"),
    ],
)
def test_a_success_that_readers_do_not_see_is_to_be_loaded(pointer: Pointer | None) -> None:
    assert difference(SUCCESS, pointer) is Difference.NOT_LOADED


@pytest.mark.parametrize("state", [FAILED, PENDING])
def test_what_the_ledger_accepted_once_and_does_not_any_more_is_to_be_withdrawn(state: PartitionState) -> None:
    assert difference(state, SHOWN) is Difference.NOT_WITHDRAWN
    assert difference(state, replace(SHOWN, run_id=OTHER_RUN)) is Difference.NOT_WITHDRAWN


@pytest.mark.parametrize("pointer", [None, SHOWN, replace(SHOWN, state_version=3, run_id=OTHER_RUN), HIDDEN])
def test_a_demotion_is_finished_first_whatever_readers_see(pointer: Pointer | None) -> None:
    assert difference(replace(SUCCESS, version=5), pointer, demoting=True) is Difference.DEMOTED_HALF_WAY


@pytest.mark.parametrize(
    ("state", "pointer"),
    [
        pytest.param(None, SHOWN, id="the ledger was lost"),
        pytest.param(None, HIDDEN, id="the ledger was lost, and with it a withdrawal"),
        pytest.param(
            SUCCESS, replace(SHOWN, state_version=5, run_id=OTHER_RUN), id="restored from before the newest run"
        ),
        pytest.param(SUCCESS, HIDDEN, id="restored from before the withdrawal"),
        pytest.param(SUCCESS, replace(HIDDEN, state_version=4), id="the same version, withdrawn"),
        pytest.param(SUCCESS, replace(SHOWN, run_id=OTHER_RUN), id="the same version, of another run"),
        pytest.param(SUCCESS, replace(SHOWN, schema_version="2"), id="the same version, of another schema version"),
        pytest.param(FAILED, replace(SHOWN, state_version=8), id="restored from before the success"),
        pytest.param(FAILED, replace(SHOWN, state_version=6), id="the same version, published"),
    ],
)
def test_nothing_is_taken_away_or_loaded_for_a_history_that_the_ledger_does_not_have(
    state: PartitionState | None, pointer: Pointer
) -> None:
    assert difference(state, pointer) is Difference.ESTRANGED


@pytest.mark.parametrize("state", [FAILED, replace(SUCCESS, version=6)])
def test_a_run_that_the_ledger_never_judged_is_not_taken_away_by_what_follows_a_restore(state: PartitionState) -> None:
    assert difference(state, replace(SHOWN, run_id=OTHER_RUN), known=False) is Difference.ESTRANGED


def test_once_adopted_it_gives_way_to_a_newer_success_and_to_no_failure() -> None:
    shown = replace(SHOWN, run_id=OTHER_RUN)
    assert difference(replace(SUCCESS, version=6), shown, known=False, adopted=True) is Difference.NOT_LOADED
    assert difference(FAILED, shown, known=False, adopted=True) is Difference.ESTRANGED


@pytest.mark.parametrize("pointer", [HIDDEN, replace(SHOWN, run_id=OTHER_RUN)])
def test_an_authority_accepted_before_the_pointer_does_not_replace_it_however_many_attempts_followed(
    pointer: Pointer,
) -> None:
    """Restored from before a withdrawal, or from before another run took over; then attempts that changed nothing."""
    restored = replace(SUCCESS, version=9)
    assert difference(restored, pointer, spoke=False) is Difference.ESTRANGED
    assert difference(restored, pointer) is Difference.NOT_LOADED


def test_a_query_rests_once_it_has_agreed_after_all_was_reported_and_until_anything_changes() -> None:
    began = datetime(2024, 6, 1, tzinfo=UTC)
    minutes = [timedelta(minutes=number) for number in range(200)]
    rest, compared = None, []
    for minute in minutes:
        mark = "changed" if minute >= timedelta(minutes=150) else "as it was"
        if not is_at_rest(rest, mark, now=began + minute):
            compared.append(minute // timedelta(minutes=1))
            rest = rest_after_comparing(rest, mark, agreed=True, now=began + minute)
    assert compared == [*range(12), 71, 131, *range(150, 162)]


def test_what_differs_never_rests() -> None:
    now = datetime(2024, 6, 1, tzinfo=UTC)
    rest = Rest(mark="as it was", since=now - timedelta(days=1))
    assert not is_at_rest(rest, "as it was", now=now)
    assert rest_after_comparing(rest, "as it was", agreed=False, now=now) == rest
