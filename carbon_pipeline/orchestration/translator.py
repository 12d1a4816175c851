"""One credential as Dagster sees it: every name that Dagster knows it by, and how its asset describes itself.

Names are made of safe names, `[a-z0-9]+(_[a-z0-9]+)*`, joined by two underscores, which none of them holds: two
credentials never share an operation, a partition set or a pool.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from uuid import UUID

import dagster as dg

from carbon_pipeline.control_plane.records import Credential
from carbon_pipeline.identity import CredentialId, safe_name

_MAIL_ADDRESS = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}")
"""What Dagster takes for one (`dagster._core.utils.is_valid_email`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialFacts:
    """What the definitions hold of a credential. It travels in launch arguments, so nothing here is secret."""

    id: str
    workspace: str
    name: str
    destination: str
    destination_origin: str
    created_by: str

    @property
    def credential_id(self) -> CredentialId:
        """Its id in the control plane."""
        return CredentialId(UUID(self.id))

    @property
    def label(self) -> str:
        """`workspace/credential`, as a person says it; the asset's key as Dagster's commands take it."""
        return f"{safe_name(self.workspace)}/{safe_name(self.name)}"

    @property
    def asset_key(self) -> dg.AssetKey:
        """`[workspace, credential]`."""
        return dg.AssetKey([safe_name(self.workspace), safe_name(self.name)])

    @property
    def joined(self) -> str:
        """`workspace__credential`: the name of whatever may have one part only."""
        return f"{safe_name(self.workspace)}__{safe_name(self.name)}"

    @property
    def pool(self) -> str:
        """The pool that keeps the source's load down."""
        return f"cred_{self.joined}"

    def as_state(self) -> dict[str, str]:
        """As plain text, for the definitions' state."""
        return asdict(self)


def facts_of(credential: Credential) -> CredentialFacts:
    """A credential of the control plane, without what Dagster need not know."""
    return CredentialFacts(
        id=str(credential.id),
        workspace=credential.workspace.name,
        name=credential.name,
        destination=str(credential.destination),
        destination_origin=credential.destination.origin.value,
        created_by=credential.created_by,
    )


def facts_from_state(state: dict[str, str]) -> CredentialFacts:
    """The inverse of `as_state`; what a newer version wrote beside it is left out."""
    return CredentialFacts(**{field.name: state[field.name] for field in fields(CredentialFacts)})


def asset_spec(facts: CredentialFacts, partitions: dg.DynamicPartitionsDefinition, code_version: str) -> dg.AssetSpec:
    """The asset of one credential, in everything but its body."""
    return dg.AssetSpec(
        key=facts.asset_key,
        description=(
            f"The tables of source **{facts.name}** in workspace **{facts.workspace}**, one partition each, "
            f"published to Iceberg under `{facts.destination}`."
        ),
        group_name=safe_name(facts.workspace),
        kinds={"postgres", "iceberg"},
        owners=_owners(facts),
        code_version=code_version,
        partitions_def=partitions,
        metadata={
            "carbon/workspace": facts.workspace,
            "carbon/credential": facts.name,
            "carbon/credential_id": facts.id,
            "carbon/created_by": facts.created_by,
            "carbon/destination": f"{facts.destination} ({facts.destination_origin})",
            "dagster/storage_kind": "iceberg",
        },
    )


def _owners(facts: CredentialFacts) -> list[str]:
    """The workspace is the team. Dagster takes a person only by mail address; others stand in the metadata."""
    team = f"team:{safe_name(facts.workspace)}"
    return [facts.created_by, team] if _MAIL_ADDRESS.fullmatch(facts.created_by) else [team]
