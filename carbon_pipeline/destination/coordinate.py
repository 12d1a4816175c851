"""A dataset's home, and the names that follow from it.

A coordinate is `(workspace, schema, name)`. It is minted once, by find-or-create in the control plane; the catalog and
the engine never make one. Identifier and location are minted with it and recorded, so a later change of these rules
moves nothing that exists.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from carbon_pipeline.errors import UsageError
from carbon_pipeline.identity import CredentialId, DatasetId, WorkspaceId, safe_name
from carbon_pipeline.source.reading import Moment

DEFAULT_CATALOG = "main"
DEFAULT_SCHEMA = "default"

_DESTINATION = re.compile(r"[a-z0-9]+(?:_[a-z0-9]+)*\.[a-z0-9]+(?:_[a-z0-9]+)*")


class DestinationOrigin(StrEnum):
    """Whether a person chose a credential's destination or it fell to the default."""

    CHOSEN = "chosen"
    DEFAULTED = "defaulted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """A credential's place in the lakehouse: a registered catalog and a schema in it."""

    catalog: str
    schema: str
    origin: DestinationOrigin

    def __str__(self) -> str:
        return f"{self.catalog}.{self.schema}"


DEFAULTED = Destination(catalog=DEFAULT_CATALOG, schema=DEFAULT_SCHEMA, origin=DestinationOrigin.DEFAULTED)


def parse_destination(text: str) -> Destination:
    """A chosen destination from `catalog.schema`; `UsageError` when it is not one."""
    if not _DESTINATION.fullmatch(text):
        raise UsageError(
            f"{text!r} is not a destination",
            remedy="Write catalog.schema in lower-case letters, digits and single underscores, as in main.sales.",
        )
    catalog, schema = text.split(".")
    return Destination(catalog=catalog, schema=schema, origin=DestinationOrigin.CHOSEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A relation's home, as the control plane knows it."""

    id: DatasetId
    workspace_id: WorkspaceId
    workspace: str
    credential_id: CredentialId
    catalog: str
    schema: str
    name: str
    identifier: tuple[str, str]
    """Namespace and table name in the catalog."""
    location: str
    relation: str
    """The source relation's `schema.table`, as last seen."""
    partition_key: str
    """Its Dagster partition key, minted when the relation was first seen; a rename keeps it."""
    committed_moment: Moment | None
    """The source's moment that the last committed operation shows."""

    @property
    def coordinate(self) -> str:
        """`schema.name`, unique in its workspace."""
        return f"{self.schema}.{self.name}"


def table_identifier(workspace: str, schema: str, name: str) -> tuple[str, str]:
    """The readable identifier used on a catalog of one's own: `<workspace>__<schema>` and `<name>`."""
    return f"{safe_name(workspace)}__{safe_name(schema)}", name


def table_location(warehouse: str, workspace_id: WorkspaceId, dataset_id: DatasetId) -> str:
    """A table's folder. It is made of ids alone, so no name can lead out of it or into another tenant's."""
    return f"{warehouse.rstrip('/')}/{workspace_id}/{dataset_id}"
