"""What `carbon ratify`, `carbon ledger` and `carbon prove` do; the proof is there for a program as well."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from carbon_pipeline.control_plane.records import (
    DatasetStatus,
    OperationFilter,
    OperationStory,
    SweepTrigger,
    Workspace,
)
from carbon_pipeline.control_plane.sql.recorded import recorded_relation
from carbon_pipeline.deployment import CODE_VERSION, Deployment
from carbon_pipeline.errors import CarbonError, LakeError, RelationNotFound, SourceError, UsageError
from carbon_pipeline.identity import CredentialId
from carbon_pipeline.lake.reader import SnapshotProof
from carbon_pipeline.ledger.states import Ruling
from carbon_pipeline.proof.checks import OPERATION_STAMP
from carbon_pipeline.proof.document import Proof, SourceAnswer, Standing, proof_document
from carbon_pipeline.proof.recheck import Recheck, every_file, ledger_query, sha256_commands, snapshot_query
from carbon_pipeline.proof.recorded import RecordedRelation
from carbon_pipeline.query.duckdb.digest import statement
from carbon_pipeline.ratify.sweep import SweepReport, Terms, Verdict
from carbon_pipeline.schema.mapping import map_relation
from carbon_pipeline.session import Session
from carbon_pipeline.source.postgres.digest import script
from carbon_pipeline.terminal.ending import say_traceback
from carbon_pipeline.terminal.operations import line_document, lines_grid, say_story, story_document
from carbon_pipeline.terminal.sweeps import Swept, say_sweep, say_trouble, sweep_document
from carbon_pipeline.verify.digest import Equality


def run_ratify(session: Session, terms: Terms, orphan_age_hours: float) -> bool:
    """Sweep, tell Dagster what the dead never did, and clean up. True when nobody has to look."""
    deployment = session.deployment
    report = deployment.ratify(SweepTrigger.TERMINAL, terms)
    swept = Swept(
        report=report,
        orphans=None if terms.dry_run else deployment.remove_orphans(orphan_age_hours),
        reported=None if terms.dry_run else _report_repaired(session, report),
    )
    if session.as_json:
        session.screen.document(sweep_document(swept))
    else:
        say_sweep(session.screen, swept)
    say_trouble(session.screen, swept)
    return swept.is_well


def _report_repaired(session: Session, report: SweepReport) -> int | None:
    """Tell Dagster what landed. It is settled all the same, so a failure is a warning; none then."""
    landed = [case for case in report.cases if case.verdict is Verdict.SETTLED and case.ruling is Ruling.LANDED]
    if not landed:
        return 0
    try:
        return _told(session.deployment, [session.deployment.directory.operation(str(c.operation.id)) for c in landed])
    except Exception as error:
        say_traceback()
        said = error.message if isinstance(error, CarbonError) else type(error).__name__
        session.screen.warn(f"Dagster was not told of what had landed ({said}); it is settled all the same")
        return None


def _told(deployment: Deployment, stories: Sequence[OperationStory]) -> int:
    from carbon_pipeline.dagster_storage import instance_for_reporting  # noqa: PLC0415 - late: takes a second
    from carbon_pipeline.orchestration.report import report_repaired  # noqa: PLC0415 - as above

    of_credential: dict[CredentialId, list[OperationStory]] = defaultdict(list)
    for story in stories:
        of_credential[story.line.dataset.credential_id].append(story)
    known = [each for each in deployment.directory.credentials() if each.id in of_credential]
    with instance_for_reporting() as instance:
        return sum(report_repaired(instance, credential, of_credential[credential.id]) for credential in known)


def show_operations(
    session: Session, which: OperationFilter, dataset: str | None, workspace: str | None, limit: int
) -> None:
    """The list, the newest first."""
    scope = session.scope(workspace)
    lines = session.deployment.directory.operations(which, dataset=dataset, workspace=scope, limit=limit)
    if session.as_json:
        session.screen.document([line_document(line) for line in lines])
    elif lines:
        session.screen.table(lines_grid(lines))
    else:
        session.screen.say("No operation yet." if which is OperationFilter.ALL else f"No operation is {which}.")


def show_operation(session: Session, text: str) -> None:
    """One operation's story."""
    story = session.deployment.directory.operation(text)
    if session.as_json:
        session.screen.document(story_document(story))
    else:
        say_story(session.screen, story)


def show_proof(session: Session, dataset: str, workspace: str | None, *, ask_source: bool) -> bool:
    """Print the document. True when everything holds, and the source, where it was asked, is equal."""
    proof = prove(session.deployment, dataset, session.scope(workspace), ask_source=ask_source)
    session.screen.document(proof_document(proof))
    if proof.source is not None and proof.source.error is not None:
        session.screen.error(proof.source.error, about="the source")
    failed = [check for check in proof.checks if not check.holds]
    for check in failed:
        session.screen.warn(f"{check.name}: {check.says}")
    equal = proof.comparison is not None and proof.comparison.verdict is Equality.EQUAL
    return proof.standing is Standing.PROVEN and (equal or not ask_source)


def prove(
    deployment: Deployment, dataset: str, workspace: Workspace | None = None, *, ask_source: bool = False
) -> Proof:
    """Read what main shows of a dataset back, whole, and hold it against the ledger. It changes nothing."""
    status = deployment.directory.dataset(dataset, workspace)
    snapshot = deployment.reader.prove(status.dataset)
    story = _story(deployment, snapshot)
    relation = None if story is None else recorded_relation(deployment.engine, story.line.id)
    return Proof(
        made_at=datetime.now(UTC),
        made_by=f"carbon_pipeline {CODE_VERSION}",
        status=status,
        story=story,
        snapshot=snapshot,
        source=_ask(deployment, status, relation) if ask_source else None,
        recheck=Recheck(
            sha256=sha256_commands(every_file(snapshot)),
            rows=statement(snapshot.columns, [file.path for file in snapshot.data_files]),
            snapshot=snapshot_query(snapshot),
            ledger=None if story is None else ledger_query(story),
            source=None if relation is None else script(relation),
        ),
    )


def _story(deployment: Deployment, snapshot: SnapshotProof) -> OperationStory | None:
    """The operation that the snapshot's stamp names; anybody may write a stamp, so it may name none."""
    try:
        return deployment.directory.operation(str(UUID(snapshot.stamps.get(OPERATION_STAMP, ""))))
    except (ValueError, UsageError):
        return None


def _ask(deployment: Deployment, status: DatasetStatus, relation: RecordedRelation | None) -> SourceAnswer:
    """The source's digest now. The relation is known by its oid, so a rename is followed."""
    try:
        credential = deployment.directory.credential(
            status.credential, deployment.directory.workspace(status.dataset.workspace)
        )
        source = deployment.ports(credential).source
        now = source.introspect().relations
        found = next((each for each in now if relation is not None and each.oid == relation.oid), None)
        if found is None:
            raise RelationNotFound(f"{status.dataset.relation} is gone from its source")
        return SourceAnswer(digest=source.digest(map_relation(found)), error=None)
    except (SourceError, LakeError) as error:
        return SourceAnswer(digest=None, error=error)
