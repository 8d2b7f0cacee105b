"""A validator that is asked for what was never judged: the run that readers see first, and no run twice."""

from pathlib import Path

from gads_assets.domain.roles import Role
from gads_assets.domain.state import AttemptOutcome, PartitionStatus
from gads_assets_tests.sealed_runs import key
from gads_assets_tests.sites import Site

DAY, OTHER_DAY = key(day="2024-06-01"), key(day="2024-06-02")


def test_a_sealed_run_that_no_check_reached_is_judged_and_the_authority_is_left_alone(site: Site) -> None:
    site.publish(DAY)
    site.publish(OTHER_DAY)
    left = site.extract(DAY, run="crashed")

    validation = site.judge(DAY, OTHER_DAY, run="reconciling", only_unjudged=True)

    assert validation.judged[DAY].recorded.outcome is AttemptOutcome.ACCEPTED
    assert site.state(DAY).current_run_id == left.run_id
    assert validation.unjudged == {OTHER_DAY: "no sealed run of it waits for a verdict"}
    assert site.state(OTHER_DAY).attempt_count == 1


def test_a_bad_run_that_no_check_reached_is_counted_and_what_is_shown_stays(site: Site) -> None:
    shown = site.publish(DAY)
    site.extract(DAY, good=False, run="crashed")

    site.judge(DAY, run="reconciling", only_unjudged=True)

    state = site.state(DAY)
    assert (state.status, state.current_run_id, state.attempt_count) == (PartitionStatus.SUCCESS, shown.run_id, 2)
    assert site.judge(DAY, run="reconciling again", only_unjudged=True).unjudged.keys() == {DAY}


def test_a_step_that_is_repeated_judges_what_it_judged_before(site: Site) -> None:
    older = site.extract(DAY, run="first crash")
    newer = site.extract(DAY, good=False, run="second crash")
    first = site.judge(DAY, run="reconciling", only_unjudged=True)

    again = site.judge(DAY, run="reconciling", only_unjudged=True)

    assert first.judged[DAY].recorded.validation_id == again.judged[DAY].recorded.validation_id
    assert (again.judged[DAY].recorded.repeated, site.state(DAY).attempt_count) == (True, 1)
    assert again.judged[DAY].manifest == newer

    site.judge(DAY, run="reconciling again", only_unjudged=True)
    assert site.state(DAY).current_run_id == older.run_id


def test_a_run_whose_files_are_gone_is_rejected_like_any_other(site: Site) -> None:
    left = site.extract(DAY, run="crashed")
    for payload in site.here.sink.payload_uris(left):
        Path(payload).unlink()
    site.judge(DAY, run="reconciling", only_unjudged=True)
    assert site.state(DAY).status is PartitionStatus.FAILED


def test_the_newest_of_those_that_wait_is_taken_and_older_ones_wait_for_nothing_then(site: Site) -> None:
    site.extract(DAY, run="first crash")
    newest = site.extract(DAY, run="second crash")
    site.judge(DAY, run="reconciling", only_unjudged=True)
    assert site.state(DAY).current_run_id == newest.run_id
    assert site.here.records_as(Role.OPERATOR).unjudged(["campaign"]) == {}
