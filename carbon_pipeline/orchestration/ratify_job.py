"""The job that settles what no writer settled: one sweep, the events that dead runs never reported, and the clean-up.

It says in the run's log what became of each operation, and it fails when a person has to look.
"""

# No `from __future__ import annotations`: Dagster reads the context's annotation, and not from text.
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import dagster as dg

from carbon_pipeline.control_plane.records import SweepTrigger
from carbon_pipeline.orchestration.assets import PIPELINE
from carbon_pipeline.orchestration.failures import explained
from carbon_pipeline.orchestration.partitions import ensure_limit
from carbon_pipeline.orchestration.port import Pipeline, Ratifier
from carbon_pipeline.orchestration.report import never_told, report_stories
from carbon_pipeline.ratify.orphans import OrphanReport
from carbon_pipeline.ratify.sweep import ABORTS_MAX, MIN_AGE_SECONDS, Case, SweepReport, Terms, Verdict

RATIFY = "ratify"
"""The job, and its pool."""
SETTLE = "settle"
"""Its op."""
TRIGGER_TAG = "carbon/trigger"
"""Which of the triggers launched the run."""
RUN_SECONDS_MAX = 3600
"""No sweep takes longer: a run that seems to has lost its process. Dagster then ends it, so it is in nobody's way."""

_RECENT_MAX = 200
"""Operations that are looked through for some that landed and that Dagster was never told of."""
_ROWS_MAX = 200
"""Cases in the table; the log has them all."""

_CONFIG = {
    "dry_run": dg.Field(bool, default_value=False, description="Only say what would be done."),
    "max_aborts": dg.Field(
        int, default_value=ABORTS_MAX, description="Where more operations would be aborted, none is, and the run fails."
    ),
    "min_age_seconds": dg.Field(
        int, default_value=int(MIN_AGE_SECONDS), description="Younger operations are left alone."
    ),
}


def ratify_job() -> dg.JobDefinition:
    """The job, over all workspaces."""

    @dg.op(
        name=SETTLE,
        description="Asks the catalogs about every unsettled operation and settles it on what they show.",
        config_schema=_CONFIG,
        required_resource_keys={PIPELINE},
        pool=RATIFY,
    )
    def settle(context: dg.OpExecutionContext) -> None:
        pipeline: Pipeline = getattr(context.resources, PIPELINE)
        ensure_pool(context.instance)
        terms = Terms(
            dry_run=context.op_config["dry_run"],
            aborts_max=context.op_config["max_aborts"],
            min_age_seconds=context.op_config["min_age_seconds"],
        )
        with explained():
            metadata = _settle(context, pipeline, terms)
        context.add_output_metadata(metadata)

    # Before the long runs in the queue, and not for ever after a restart that took its process away.
    tags = {"dagster/priority": "1", "dagster/max_runtime": str(RUN_SECONDS_MAX)}

    @dg.job(name=RATIFY, description="Settles every write whose outcome is unknown, on evidence.", tags=tags)
    def ratify() -> None:
        settle()

    return ratify


def ensure_pool(instance: dg.DagsterInstance) -> None:
    """One sweep at a time: two would do no harm, and no good."""
    ensure_limit(instance, RATIFY, 1)


def trigger_of(tags: Mapping[str, str]) -> SweepTrigger:
    """Who launched a run with these tags; a person or a program, where it was none of the triggers."""
    told = tags.get(TRIGGER_TAG)
    return SweepTrigger(told) if told in set(SweepTrigger) else SweepTrigger.LIBRARY


def _settle(context: dg.OpExecutionContext, pipeline: Pipeline, terms: Terms) -> dict[str, dg.MetadataValue]:
    """Sweep, report, clean up, and return what is to be said about it. `Failure` when a person has to look."""
    ratifier = pipeline.ratifier()
    report = ratifier.sweep(trigger_of(context.run.tags), terms)
    for case in report.cases:
        context.log.info(_line(case))
    metadata = _told(report)
    if not terms.dry_run:
        metadata["materialisations"] = dg.MetadataValue.int(_report(context, pipeline, ratifier, report))
        metadata.update(_orphans(context, ratifier.remove_orphans()))
    if report.is_alarming:
        raise _failure(report, metadata)
    return metadata


def _line(case: Case) -> str:
    operation = case.operation
    ruling = "" if case.ruling is None else f" as {case.ruling.value}"
    return (
        f"{operation.dataset.workspace}: {operation.dataset.coordinate}, operation {operation.id} "
        f"({operation.status.value}): {case.verdict.value}{ruling}: {case.reason}"
    )


def _report(context: dg.OpExecutionContext, pipeline: Pipeline, ratifier: Ratifier, report: SweepReport) -> int:
    """Report what this sweep found to have landed, and what an earlier one, or a run, died before it could report."""
    settled = [case.operation.id for case in report.cases if case.verdict is Verdict.SETTLED]
    missed = [line.id for line in never_told(context.instance, ratifier.recent(_RECENT_MAX))]
    stories = [ratifier.story(operation_id) for operation_id in dict.fromkeys([*settled, *missed])]
    of_credential = defaultdict(list)
    for story in stories:
        of_credential[story.line.dataset.credential_id].append(story)
    return sum(
        report_stories(context.instance, facts, of_credential[facts.credential_id])
        for facts in pipeline.credentials()
        if facts.credential_id in of_credential
    )


def _orphans(context: dg.OpExecutionContext, orphans: OrphanReport) -> dict[str, dg.MetadataValue]:
    """What the clean-up did. A file that is in use although its write was aborted is for a person to look at."""
    for path in orphans.kept:
        context.log.warning(f"kept {path}: a snapshot refers to it although its operation was aborted")
    for failed in orphans.failed:
        context.log.warning(f"orphans could not be removed: {failed}")
    return {
        "files removed": dg.MetadataValue.int(orphans.removed),
        "files kept": dg.MetadataValue.int(len(orphans.kept)),
    }


def _told(report: SweepReport) -> dict[str, dg.MetadataValue]:
    verdicts = Counter(case.verdict for case in report.cases)
    counts = {verdict.value: dg.MetadataValue.int(verdicts[verdict]) for verdict in Verdict}
    return {**counts, "landed late": dg.MetadataValue.int(len(report.late)), "cases": _table(report.cases)}


def _table(cases: Iterable[Case]) -> dg.MetadataValue:
    columns = ("workspace", "dataset", "operation", "status", "verdict", "ruling", "reason")
    rows = [
        (
            case.operation.dataset.workspace,
            case.operation.dataset.coordinate,
            str(case.operation.id),
            case.operation.status.value,
            case.verdict.value,
            "" if case.ruling is None else case.ruling.value,
            case.reason,
        )
        for case in [*cases][:_ROWS_MAX]
    ]
    return dg.MetadataValue.table(
        records=[dg.TableRecord(dict(zip(columns, row, strict=True))) for row in rows],
        schema=dg.TableSchema(columns=[dg.TableColumn(name=name) for name in columns]),
    )


def _failure(report: SweepReport, metadata: dict[str, dg.MetadataValue]) -> dg.Failure:
    """What is wrong, and what a person can do about each of it."""
    said, remedies = [], []
    if report.alarm is not None:
        said.append(report.alarm)
        remedies.append(
            "So many at once are rarely dead writers: first check that this deployment's catalogs and warehouses are "
            "those that the operations name (`carbon ledger`). If they are, launch this job with a greater "
            "`max_aborts`."
        )
    if report.late:
        named = ", ".join(f"{each.dataset.coordinate} (operation {each.id})" for each in report.late)
        said.append(f"landed after they had been ruled aborted: {named}")
        remedies.append(
            "Roll each table back to the parent of the snapshot that landed late, or sync it anew, which replaces its "
            "rows. The ruling stays as it is."
        )
    return dg.Failure(
        description="; ".join(said),
        metadata={"remedy": dg.MetadataValue.md("\n\n".join(remedies)), **metadata},
        allow_retries=False,
    )
