"""The validator as asset checks: it judges sealed runs, writes PartitionState, and gates what is published.

`verdict` is the gate, partitioned as the asset is. Each rule is a check beside it, so that the page shows which one
failed: for the whole of a run's partitions, and for each partition that breaks it. Rules are not partitioned for
Dagster's sake: it plans a partitioned check by writing the list of a run's N partitions N times, and ten rules would
make that the longest part of a run.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import dagster as dg

from gads_assets.catalog.specification import Catalog, QuerySpecification
from gads_assets.domain.keys import PartitionKey
from gads_assets.domain.verdict import Finding, Rule, Severity
from gads_assets.orchestration import metadata
from gads_assets.orchestration.batches import begin_step, explain_failures, explained_failures
from gads_assets.orchestration.dagster_internals import AssetCheckEvaluation, materialization_targets
from gads_assets.orchestration.keys import raw_key, spark_pool, table_key
from gads_assets.orchestration.partitions import CustomerDays, partition_keys
from gads_assets.orchestration.resources import WorkplaceResource
from gads_assets.orchestration.runs import (
    includes_asset,
    judges_only_unjudged,
    partition_failure,
    readable_failures,
    root_run_id,
)
from gads_assets.validate.recording import Judged

VERDICT: Final = "verdict"

_SEVERITIES: Final = {Severity.ERROR: dg.AssetCheckSeverity.ERROR, Severity.WARN: dg.AssetCheckSeverity.WARN}


def validator_checks(
    catalog: Catalog, specification: QuerySpecification, partitions_def: CustomerDays
) -> dg.AssetChecksDefinition:
    asset_key = raw_key(catalog, specification.name)
    verdict_spec = dg.AssetCheckSpec(
        VERDICT,
        asset=asset_key,
        blocking=True,
        partitions_def=partitions_def,
        description="Judges the sealed run by every rule. The outcome goes into the state store, and only a partition "
        "that passes is published.",
    )
    rule_specs = [dg.AssetCheckSpec(rule.value, asset=asset_key, description=rule.promise) for rule in Rule]

    @dg.multi_asset_check(
        name=f"{catalog.source}__raw__{specification.name}__validator",
        specs=[verdict_spec, *rule_specs],
        can_subset=True,
        pool=spark_pool(catalog),
        description="Judges sealed runs by all rules and records that; each rule that is asked for answers too.",
    )
    def validator(
        context: dg.AssetCheckExecutionContext, workplace: WorkplaceResource
    ) -> Iterator[AssetCheckEvaluation | dg.Output[None]]:
        op_context = context.op_execution_context
        asked = {check.name for check in op_context.selected_asset_check_keys}
        if VERDICT not in asked:
            raise dg.Failure(
                "a rule is asked of a partition, together with all others; run the check `verdict` on a partition, and "
                "each rule answers with it",
                allow_retries=False,
            )
        given = partition_keys(op_context.partition_keys, source=catalog.source, query_name=specification.name)
        table = table_key(catalog, specification.name)
        publishes = includes_asset(op_context.job_def, table)
        without = {table: "was not published"} if publishes else {}
        with readable_failures():
            keys, held = begin_step(
                workplace.get(),
                op_context.run,
                given,
                after_extraction=includes_asset(op_context.job_def, asset_key),
            )
        with explained_failures(op_context.instance, op_context.run, without, [*keys, *held]):
            validation = workplace.get().validator.validate(
                keys,
                dagster_run_id=root_run_id(op_context.run),
                only_unjudged=judges_only_unjudged(op_context.run),
            )
        targets = materialization_targets(op_context.instance, asset_key, [key.label for key in keys])
        for rule in Rule:
            if rule.value in asked:
                yield from _evaluations_of_rule(asset_key, rule, validation.judged)
        for key, judged in validation.judged.items():
            yield AssetCheckEvaluation(
                asset_key=asset_key,
                check_name=VERDICT,
                partition=key.label,
                passed=judged.accepted,
                description=judged.error_message or "; ".join(judged.verdict.warnings) or None,
                metadata=metadata.verdict(judged),
                target_materialization_data=targets.get(key.label),
                # In a run of many, one bad partition must not hold back the rest: PartitionState gates each.
                blocking=len(keys) + len(held) == 1,
            )
        for output_name in op_context.selected_output_names:
            yield dg.Output(None, output_name=output_name)
        refused = (
            held
            | dict(validation.unjudged)
            | {
                key: judged.error_message or "rejected"
                for key, judged in validation.judged.items()
                if not judged.accepted
            }
        )
        total = len(keys) + len(held)
        if refused and (total == 1 or not publishes):
            explain_failures(op_context.instance, op_context.run, without, refused)
            raise partition_failure("were not accepted", refused, of=total)

    return validator


def _evaluations_of_rule(
    asset_key: dg.AssetKey, rule: Rule, judged: Mapping[PartitionKey, Judged]
) -> Iterator[AssetCheckEvaluation]:
    """One for each partition that breaks the rule, then one for all of the run, which is what the page shows first."""
    found = {key: _finding(run, rule) for key, run in judged.items()}
    answers = {key: finding for key, finding in found.items() if finding}
    broken = {key: finding for key, finding in answers.items() if not finding.passed}
    severity = _SEVERITIES[rule.severity]
    if not answers:
        return
    if len(judged) > 1:
        for key, finding in broken.items():
            yield AssetCheckEvaluation(
                asset_key=asset_key,
                check_name=rule.value,
                partition=key.label,
                passed=False,
                severity=severity,
                description=finding.detail,
                metadata=metadata.finding(finding),
            )
    yield AssetCheckEvaluation(
        asset_key=asset_key,
        check_name=rule.value,
        passed=not broken,
        severity=severity,
        description=_summary(answers, broken),
        metadata=metadata.findings(answers, broken),
    )


def _finding(judged: Judged, rule: Rule) -> Finding | None:
    """None where the run was rejected before this rule could be asked."""
    return next((finding for finding in judged.verdict.findings if finding.rule is rule), None)


def _summary(answers: Mapping[PartitionKey, Finding], broken: Mapping[PartitionKey, Finding]) -> str:
    shown: Sequence[tuple[PartitionKey, Finding]] = [*(broken or answers).items()]
    if len(answers) == 1:
        return f"{shown[0][0].label}: {shown[0][1].detail}"
    if broken:
        return f"{len(broken)} of {len(answers)} partitions break it, first {shown[0][0].label}: {shown[0][1].detail}"
    return f"{len(answers)} partitions keep it"
