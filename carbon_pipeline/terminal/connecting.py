"""What was found behind a new credential, and what one table of it consists of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from carbon_pipeline.control_plane.records import Credential
from carbon_pipeline.schema.mapping import Mapping
from carbon_pipeline.source.relation import Introspection, Keys
from carbon_pipeline.terminal.screen import Screen
from carbon_pipeline.terminal.spelling import counted, size
from carbon_pipeline.terminal.views import columns_grid, foreign_key_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """A credential that was just saved, and what its source looks like."""

    credential: Credential
    updated: bool
    found: Introspection
    warnings: tuple[str, ...]


def say_connected(screen: Screen, connected: Connected) -> None:
    """What was found and where it will land."""
    credential, found = connected.credential, connected.found
    for warning in connected.warnings:
        screen.warn(warning)
    total = size(sum(relation.size_bytes for relation in found.relations))
    tables = counted(len(found.relations), "table")
    screen.say(f"Database {found.database}, PostgreSQL {found.server_version}: {tables}, {total}")
    failed = sum(relation.keys.failed is not None for relation in found.relations)
    if failed:
        screen.warn(f"the keys of {counted(failed, 'table')} could not be read; `carbon tables` says why")
    destination = credential.destination
    screen.say(f"They land in {destination} ({destination.origin}), workspace {credential.workspace.name}")
    done = "has its new connection" if connected.updated else "is saved"
    screen.say(f"Credential {credential.name} {done}. Next: carbon sync {credential.name}")


def connected_document(connected: Connected, source: dict[str, object]) -> dict[str, object]:
    """The same for a program; *source* is the credential's document."""
    return {
        "credential": source,
        "updated": connected.updated,
        "server_version": connected.found.server_version,
        "tables": len(connected.found.relations),
        "warnings": list(connected.warnings),
    }


def say_table(screen: Screen, mapping: Mapping, coordinate: str) -> None:
    """One table: its columns, its keys, and where it lands."""
    relation = mapping.relation
    screen.say(f"{relation.qualified_name} ({relation.kind}) → {coordinate}", "bold")
    screen.table(columns_grid(mapping))
    for line in _key_lines(relation.keys):
        screen.say(line)


def _key_lines(keys: Keys) -> Sequence[str]:
    if keys.failed is not None:
        return [f"keys: not known, reading the keys failed: {keys.failed}"]
    primary = f"primary key: {', '.join(keys.primary) or 'none'}"
    return [primary, *(f"foreign key: {foreign_key_line(key)}" for key in keys.foreign)]
