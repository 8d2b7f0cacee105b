"""A run has what it works on: what others have it leaves to them, and says so on each partition."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.roles import Role
from gads_assets.errors import AuthenticationError, DatabaseUnavailableError, WarehouseError
from gads_assets.extract.extraction import Extraction
from gads_assets.extract.partitions import Extractor
from gads_assets.orchestration import presence
from gads_assets.orchestration.presence import join
from gads_assets.state.leases import Leases
from gads_assets.validate.recording import Validator
from gads_assets.warehouse.loading import Loader
from gads_assets_tests.integration.orchestration.scattered import GOOD, UNEXTRACTED, reasons, run_failure, steps_begun
from gads_assets_tests.worlds import (
    NEW_YORK,
    RAW,
    TABLE,
    TOKYO,
    World,
    attempted,
    evaluations,
    key,
    step_failure,
)

pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning", "ignore::dagster.PreviewWarning")


def test_a_run_has_its_leases_also_when_the_database_was_away_as_it_began(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    extend, extract = Leases.extend, Extractor.extract
    tried: list[str] = []
    held: list[dict[PartitionKey, str]] = []

    def be_away_twice(leases: Leases, run_id: str) -> int:
        tried.append(run_id)
        if len(tried) <= 2:
            raise DatabaseUnavailableError("the database is starting up")
        return extend(leases, run_id)

    def look_first(*arguments: Any, **named: Any) -> Extraction:
        held.append(world.here.leases_as(Role.OPERATOR).held([key(label) for label in GOOD]))
        return extract(*arguments, **named)

    monkeypatch.setattr(presence, "_PAUSE", timedelta())
    monkeypatch.setattr(Leases, "extend", be_away_twice)
    monkeypatch.setattr(Extractor, "extract", look_first)

    result = world.run_batch([*GOOD], assets=[RAW], checks=[])

    assert result.success
    assert held == [dict.fromkeys(map(key, GOOD), result.run_id)]


def test_a_run_that_cannot_say_that_it_lives_ends_with_one_line_and_does_nothing(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()

    def be_away(*_: object) -> None:
        raise DatabaseUnavailableError("the database cannot be reached")

    monkeypatch.setattr(presence, "_PATIENCE", timedelta())
    monkeypatch.setattr(presence, "_PAUSE", timedelta())
    monkeypatch.setattr(Leases, "extend", be_away)

    result = world.run_batch([*GOOD])

    assert result.dagster_run.status is dg.DagsterRunStatus.FAILURE
    assert run_failure(world, result) == "the database cannot be reached"
    assert steps_begun(result) == set()
    assert world.here.sink.sealed_runs(key(min(GOOD))) == []


def test_what_another_run_has_is_left_to_it_and_named(make_world: Callable[..., World]) -> None:
    world = make_world()
    [held, *free] = sorted(GOOD)
    leases = world.here.leases_as(Role.EXTRACTOR)

    with join("another run"):
        leases.take("another run", [key(held)])
        result = world.run_batch([*GOOD])
        left = leases.held([key(label) for label in GOOD])

    assert not result.success
    assert "1 of 3 partitions were not published" in step_failure(result, "google_ads__campaign")
    assert "run another run has it" in step_failure(result, "google_ads__campaign")
    assert world.materialized(TABLE) == set(free)
    assert left == {key(held): "another run"}


def test_what_was_left_to_another_run_is_neither_judged_nor_published_once_that_one_is_done(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    [held, *free] = sorted(GOOD)
    world.run(held)
    before = world.published()
    leases, extract = world.here.leases_as(Role.EXTRACTOR), Extractor.extract
    with join("another run"):
        leases.take("another run", [key(held)])

        def be_outlasted(*arguments: Any, **named: Any) -> Extraction:
            extraction = extract(*arguments, **named)
            leases.release("another run")
            return extraction

        monkeypatch.setattr(Extractor, "extract", be_outlasted)
        result = world.run_batch([*GOOD])

    assert evaluations(result) == dict.fromkeys(free, True)
    assert world.attempts(held) == 1
    assert {label: runs for label, runs in world.published().items() if label == held} == before
    assert world.materialized(TABLE) == GOOD
    assert "1 of 3 partitions were not published" in step_failure(result, "google_ads__campaign")
    assert "run another run has it" in reasons(world, RAW, held)[0]
    assert "another run had it when this one extracted" in reasons(world, TABLE, held)[0]
    assert attempted(world, TABLE)[held] == "FAILED"


def test_a_batch_that_others_have_all_of_says_so_on_each_partition(make_world: Callable[..., World]) -> None:
    world = make_world()
    with join("another run"):
        world.here.leases_as(Role.EXTRACTOR).take("another run", map(key, GOOD))
        result = world.run_batch([*GOOD])

    assert "3 of 3 partitions were not extracted" in step_failure(result, "google_ads__raw__campaign")
    for asset in (RAW, TABLE):
        for label in GOOD:
            [reason] = reasons(world, asset, label)
            assert "run another run has it" in reason


def test_what_ends_the_extraction_of_a_batch_is_the_reason_of_each_of_its_partitions(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    [held, *others] = sorted(GOOD)

    def refuse(*_: object, **__: object) -> None:
        raise AuthenticationError("the credentials are refused", customer_id=NEW_YORK)

    monkeypatch.setattr(Extractor, "extract", refuse)
    with join("another run"):
        world.here.leases_as(Role.EXTRACTOR).take("another run", [key(held)])
        result = world.run_batch([*GOOD])

    assert step_failure(result, "google_ads__raw__campaign") == "the credentials are refused"
    for asset in (RAW, TABLE):
        assert [reasons(world, asset, label) for label in others] == [["the credentials are refused"]] * 2
        assert len(reasons(world, asset, held)) == 1


def test_a_batch_of_which_nothing_is_extracted_says_why_on_each_partition_of_the_table(
    make_world: Callable[..., World],
) -> None:
    world = make_world(f"transient@{TOKYO}/campaign/*:99")

    result = world.run_batch([*UNEXTRACTED])

    assert steps_begun(result) == {"google_ads__raw__campaign"}
    for label in UNEXTRACTED:
        [reason] = reasons(world, TABLE, label)
        assert reasons(world, RAW, label) == [reason]
        assert attempted(world, TABLE)[label] == "FAILED"


@pytest.mark.parametrize(("part", "step"), [(Validator, "raw__campaign__validator"), (Loader, "campaign")])
def test_what_ends_a_later_step_of_a_batch_is_the_reason_of_each_partition_of_the_table(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, part: type, step: str
) -> None:
    world = make_world()

    def be_full(*_: object, **__: object) -> None:
        raise WarehouseError("the disk is full")

    monkeypatch.setattr(part, "validate" if part is Validator else "load", be_full)

    result = world.run_batch([*GOOD])

    assert step_failure(result, f"google_ads__{step}") == "the disk is full"
    assert [reasons(world, TABLE, label) for label in GOOD] == [["the disk is full"]] * 3


def test_what_a_killed_run_had_is_taken_over_when_its_lease_has_ended(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    monkeypatch.setenv("GADS_LEASE_SECONDS", "3")
    Leases(world.here.engine_as(Role.EXTRACTOR), lasts=timedelta(seconds=3)).take(
        "killed", [key(label) for label in GOOD]
    )

    assert world.run_batch([*GOOD]).success

    assert set(world.published()) == GOOD
