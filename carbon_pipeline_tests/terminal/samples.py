"""Frozen values to print, and a screen whose streams can be read."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import UUID

from rich.console import Console

from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.errors import CarbonError
from carbon_pipeline.identity import CredentialId, DatasetId, OperationId, WorkspaceId
from carbon_pipeline.lake.outcome import SnapshotFacts
from carbon_pipeline.ledger.operation import Entry
from carbon_pipeline.ledger.states import OperationStatus, Ruling
from carbon_pipeline.schema.mapping import map_relation
from carbon_pipeline.source.reading import Moment, Reading
from carbon_pipeline.source.relation import Column, Keys, Relation, RelationKind, TypeKind
from carbon_pipeline.sync import Receipt
from carbon_pipeline.sync_all import TableResult
from carbon_pipeline.terminal.screen import Screen

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def screen(*, terminal: bool = False, width: int = 80) -> tuple[Screen, io.StringIO, io.StringIO]:
    """A screen, and what it writes to stdout and stderr. No styles, so that tests read text."""

    def console(file: io.StringIO) -> Console:
        return Console(
            file=file,
            force_terminal=terminal,
            width=width,
            color_system=None,
            highlight=False,
            markup=False,
            emoji=False,
        )

    out, err = io.StringIO(), io.StringIO()
    return Screen(out=console(out), err=console(err)), out, err


def relation(name: str = "orders", *, oid: int = 1, estimated_rows: int | None = 1000) -> Relation:
    """A table with one column."""
    column = Column(
        attnum=1,
        name="id",
        declared_type="integer",
        type_name="int4",
        type_kind=TypeKind.BUILT_IN,
        precision=None,
        scale=None,
        not_null=True,
        comment=None,
    )
    return Relation(
        oid=oid,
        schema="public",
        name=name,
        kind=RelationKind.TABLE,
        columns=(column,),
        keys=Keys(primary=("id",)),
        estimated_rows=estimated_rows,
        size_bytes=8192,
        comment=None,
    )


def dataset(name: str = "orders") -> Dataset:
    """Its home."""
    return Dataset(
        id=DatasetId(UUID(int=len(name))),
        workspace_id=WorkspaceId(UUID(int=1)),
        workspace="acme",
        credential_id=CredentialId(UUID(int=2)),
        catalog="main",
        schema="default",
        name=name,
        identifier=("acme__default", name),
        location=f"file:///warehouse/{name}",
        relation=f"public.{name}",
        partition_key=f"public.{name}",
        committed_moment=None,
    )


def entry(ruling: Ruling = Ruling.LANDED, rows: int | None = 1234) -> Entry:
    """A settled operation."""
    facts = None
    if rows is not None:
        facts = SnapshotFacts(
            snapshot_id=2**62 + 1,
            parent_snapshot_id=None,
            rows=rows,
            size_bytes=56_789,
            data_files=1,
            has_identity=True,
        )
    status = OperationStatus.COMMITTED if facts is not None else OperationStatus.ABORTED
    return Entry(
        operation_id=OperationId(UUID(int=7)),
        dataset_id=DatasetId(UUID(int=6)),
        seq=3,
        ruling=ruling,
        status=status,
        facts=facts,
        seconds=0.5,
    )


def published(name: str = "orders", *, oid: int = 1, before: Entry | None = None) -> TableResult:
    """A table that was published."""
    table = relation(name, oid=oid)
    receipt = Receipt(
        dataset=dataset(name),
        mapping=map_relation(table),
        entry=entry(),
        settled_before=before,
        reading=Reading(moment=Moment(system_identifier=1, lsn=0x16B374D848, time=NOON), batches=_no_batches()),
    )
    return TableResult(relation=table, receipt=receipt, error=None, seconds=0.75)


def failed(error: CarbonError, name: str = "orders", *, oid: int = 1) -> TableResult:
    """A table that was not."""
    return TableResult(relation=relation(name, oid=oid), receipt=None, error=error, seconds=0.25)


def _no_batches() -> Iterator[object]:
    yield from ()
