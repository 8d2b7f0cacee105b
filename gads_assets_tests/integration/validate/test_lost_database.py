"""A database that is lost, or restored from an older backup, while the raw sink and the warehouse stay as they are."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.manifest import RunManifest
from gads_assets.domain.reconciling import Difference
from gads_assets.domain.roles import Role
from gads_assets.domain.state import AttemptOutcome, PartitionStatus, Reconcilable
from gads_assets.extract.restoring import restore_extractions
from gads_assets.warehouse.publishing import current_state
from gads_assets_tests.databases import execute
from gads_assets_tests.ledgers import NOW, new_override_id
from gads_assets_tests.sealed_runs import key
from gads_assets_tests.sites import Site

DAY = key()


@pytest.fixture
def go_back(site: Site, postgres_url: str, migrated: str) -> Callable[[str], None]:
    """Puts a copy in the place of the test's database: a backup, or the template, which knows nothing."""

    def go_back(copy: str) -> None:
        execute(postgres_url, "DROP DATABASE test WITH (FORCE)")
        execute(postgres_url, f"CREATE DATABASE test TEMPLATE {copy} STRATEGY file_copy")

    return go_back


@pytest.fixture
def lose(go_back: Callable[[str], None], migrated: str) -> Callable[[], None]:
    return lambda: go_back(migrated)


@pytest.fixture
def back_up(site: Site, postgres_url: str) -> Iterator[Callable[[], None]]:
    def back_up() -> None:
        for engine in site.here._engines.values():
            engine.dispose()
        execute(postgres_url, "CREATE DATABASE backup TEMPLATE test STRATEGY file_copy")

    yield back_up
    execute(postgres_url, "DROP DATABASE IF EXISTS backup WITH (FORCE)")


def adopt(site: Site) -> dict[PartitionKey, int]:
    """As an operator does it for all of a query, the sealed runs first."""
    restore_extractions(site.here.sink, site.here.store_as(Role.EXTRACTOR), "google_ads")
    found = site.here.loader.compare("google_ads", "campaign")
    return site.here.store_as(Role.OPERATOR).adopt(
        [found.pointers[key] for key in found.with_difference(Difference.ESTRANGED)],
        actor="ana",
        reason="restored from a backup",
        now=NOW,
        new_override_id=new_override_id,
    )


def reconcilable(site: Site) -> Reconcilable:
    return site.here.store_as(Role.OPERATOR).reconcilable(current_state(site.here.layout, "campaign"))[DAY]


def damage(site: Site, run: RunManifest) -> None:
    for payload in site.here.sink.payload_uris(run):
        Path(payload).unlink()


@pytest.mark.parametrize("is_next_good", [True, False])
def test_after_a_loss_what_is_shown_is_judged_first_and_stays_then_what_is_newer(
    site: Site, lose: Callable[[], None], is_next_good: bool
) -> None:
    site.publish(DAY, run="first")
    shown = site.publish(DAY, run="second")
    waiting = site.extract(DAY, good=is_next_good, run="crashed")
    lose()
    known = reconcilable(site)
    assert (known.state, known.knows_pointer, known.version_floor) == (None, False, None)

    assert adopt(site) == {DAY: 2}
    assert reconcilable(site).version_floor == 2
    site.judge(DAY, run="reconciling", only_unjudged=True)

    state = site.state(DAY)
    assert (state.status, state.current_run_id, state.version) == (PartitionStatus.SUCCESS, shown.run_id, 3)
    known = reconcilable(site)
    assert (known.state, known.knows_pointer, known.version_floor) == (state, True, None)
    [pointer] = site.here.loader.load([DAY]).pointers
    assert pointer.state_version == 2  # the one that was there
    assert site.shown(DAY) == shown.run_id
    assert adopt(site) == {}

    site.judge(DAY, run="reconciling again", only_unjudged=True)
    site.here.loader.load([DAY])
    assert site.shown(DAY) == (waiting if is_next_good else shown).run_id
    assert (site.state(DAY).status, site.state(DAY).version) == (PartitionStatus.SUCCESS, 4)


def test_after_a_loss_new_runs_are_newer_than_those_that_were_lost(site: Site, lose: Callable[[], None]) -> None:
    before = [site.publish(DAY, run=run) for run in ("first", "second")]
    lose()
    adopt(site)
    site.judge(DAY, run="reconciling", only_unjudged=True)
    new = site.publish(DAY, run="third")
    assert new.run_seq > max(run.run_seq for run in before)


def test_an_ordinary_run_takes_up_an_adoption_too(site: Site, lose: Callable[[], None]) -> None:
    site.publish(DAY, run="first")
    lose()
    adopt(site)
    site.publish(DAY, run="second")
    assert site.state(DAY).version == 2


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_restored_database_comes_to_agree_with_what_was_published_since(
    site: Site, go_back: Callable[[str], None], back_up: Callable[[], None], is_damaged: bool
) -> None:
    old = site.publish(DAY, run="first")
    back_up()
    site.publish(DAY, run="second")
    shown = site.publish(DAY, run="third")
    go_back("backup")
    assert "newer state" in site.here.loader.load([DAY]).refused[DAY]
    known = reconcilable(site)
    assert known.state == site.state(DAY)
    assert (site.state(DAY).current_run_id, site.state(DAY).version) == (old.run_id, 1)
    assert not known.knows_pointer
    if is_damaged:
        damage(site, shown)

    assert adopt(site) == {DAY: 3}
    validation = site.judge(DAY, run="reconciling", only_unjudged=True)

    assert validation.judged[DAY].manifest == shown
    assert site.state(DAY).version == 4
    assert reconcilable(site).knows_pointer
    site.here.loader.load([DAY])
    assert site.shown(DAY) == site.state(DAY).current_run_id == (old if is_damaged else shown).run_id


def test_rows_withdrawn_since_the_backup_stay_withdrawn(
    site: Site, go_back: Callable[[str], None], back_up: Callable[[], None]
) -> None:
    run = site.publish(DAY, run="first")
    back_up()
    damage(site, run)
    site.judge(DAY, run="revalidation")
    assert site.shown(DAY) is None
    go_back("backup")
    assert "newer state" in site.here.loader.load([DAY]).refused[DAY]

    assert adopt(site) == {DAY: 2}
    validation = site.judge(DAY, run="reconciling", only_unjudged=True)

    assert validation.judged[DAY].recorded.outcome is AttemptOutcome.DEMOTED
    assert (site.state(DAY).status, site.state(DAY).version) == (PartitionStatus.FAILED, 4)
    assert site.shown(DAY) is None
    assert adopt(site) == {}


def test_a_run_that_is_shown_and_whose_seal_is_gone_keeps_its_rows_and_no_other_is_judged(
    site: Site, lose: Callable[[], None]
) -> None:
    shown = site.publish(DAY, run="first")
    site.extract(DAY, good=False, run="crashed")
    (Path(site.here.sink.payload_uris(shown)[0]).parent / "metadata.json").unlink()
    lose()
    adopt(site)

    validation = site.judge(DAY, run="reconciling", only_unjudged=True)

    assert f"run {shown.run_id} of {DAY} has no seal" in validation.unjudged[DAY]
    assert site.here.store_as(Role.CONSUMER).states([DAY]) == {}
    assert site.shown(DAY) == shown.run_id

    # Nobody can judge it any more: once adopted, the day may be extracted again, and the new run takes its place.
    assert site.here.loader.estranged([DAY]) == set()
    site.publish(DAY, run="new")


@pytest.mark.parametrize("verdicts", [(False, False, False), (True, False, False), (True, True, True)])
def test_whatever_is_judged_after_a_restore_readers_keep_what_they_see_until_it_is_adopted(
    site: Site, go_back: Callable[[str], None], back_up: Callable[[], None], verdicts: tuple[bool, ...]
) -> None:
    """Good and bad runs come in before anybody notices, and raise the version above the pointer's."""
    site.publish(DAY, run="first")
    back_up()
    shown = site.publish(DAY, run="second")
    go_back("backup")
    for number, good in enumerate(verdicts):
        site.extract(DAY, good=good, run=f"since {number}")
        site.judge(DAY, run=f"since {number}")
    state = site.state(DAY)
    assert (state.status, state.version) == (PartitionStatus.SUCCESS, 4)

    [refusal] = site.here.loader.load([DAY]).refused.values()
    assert "from a history that this database does not have" in refusal
    assert site.here.loader.estranged([DAY]) == {DAY}
    assert site.shown(DAY) == shown.run_id

    assert adopt(site) == {DAY: 4}
    site.judge(DAY, run="reconciling", only_unjudged=True)
    site.here.loader.load([DAY])
    assert site.shown(DAY) == site.state(DAY).current_run_id
    assert site.here.loader.compare("google_ads", "campaign").differences == {}
    assert site.here.loader.estranged([DAY]) == set()


def test_a_failure_that_follows_a_restore_is_adopted_too(
    site: Site, go_back: Callable[[str], None], back_up: Callable[[], None]
) -> None:
    back_up()
    shown = site.publish(DAY, run="first")
    go_back("backup")
    for run in ("bad", "worse"):
        site.extract(DAY, good=False, run=run)
        site.judge(DAY, run=run)
    assert (site.state(DAY).status, site.state(DAY).version) == (PartitionStatus.FAILED, 2)
    assert site.shown(DAY) == shown.run_id

    assert adopt(site) == {DAY: 2}
    site.judge(DAY, run="reconciling", only_unjudged=True)

    assert (site.state(DAY).status, site.state(DAY).current_run_id) == (PartitionStatus.SUCCESS, shown.run_id)
    assert site.here.loader.compare("google_ads", "campaign").differences == {}


def test_what_was_withdrawn_since_the_backup_is_not_shown_again_by_attempts_that_change_nothing(
    site: Site, go_back: Callable[[str], None], back_up: Callable[[], None]
) -> None:
    run = site.publish(DAY, run="first")
    back_up()
    damage(site, run)
    site.judge(DAY, run="revalidation")
    go_back("backup")
    for number in range(3):
        site.extract(DAY, good=False, run=f"bad {number}")
        site.judge(DAY, run=f"bad {number}")
    assert (site.state(DAY).status, site.state(DAY).version) == (PartitionStatus.SUCCESS, 4)

    assert site.here.loader.load([DAY]).refused
    assert site.shown(DAY) is None

    assert adopt(site) == {DAY: 4}
    site.judge(DAY, run="reconciling", only_unjudged=True)
    assert (site.state(DAY).status, site.shown(DAY)) == (PartitionStatus.FAILED, None)


def test_a_demotion_that_follows_a_restore_does_not_hide_a_run_that_the_ledger_never_judged(
    site: Site, go_back: Callable[[str], None], back_up: Callable[[], None]
) -> None:
    old = site.publish(DAY, run="first")
    back_up()
    shown = site.publish(DAY, run="second")
    go_back("backup")
    site.judge(DAY, run="revalidation")
    damage(site, old)

    site.judge(DAY, run="another revalidation")

    assert (site.state(DAY).status, site.state(DAY).version) == (PartitionStatus.FAILED, 4)
    assert site.shown(DAY) == shown.run_id
    assert adopt(site) == {DAY: 4}
    site.judge(DAY, run="reconciling", only_unjudged=True)
    assert (site.state(DAY).status, site.state(DAY).current_run_id) == (PartitionStatus.SUCCESS, shown.run_id)
    assert site.here.loader.compare("google_ads", "campaign").differences == {}
