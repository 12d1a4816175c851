"""Frozen facts of one source and its relations, as introspection found them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RelationKind(StrEnum):
    """What a relation is, by `pg_class.relkind`."""

    TABLE = "table"
    PARTITIONED = "partitioned table"
    MATERIALISED_VIEW = "materialised view"


class TypeKind(StrEnum):
    """What a column's type is, by `pg_type.typtype`, domains already resolved to what they stand on."""

    BUILT_IN = "built-in"
    ENUM = "enum"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column. `attnum` names it for life; `name` may change."""

    attnum: int
    name: str
    declared_type: str
    """As `format_type` prints it, domain names included."""
    type_name: str
    """`pg_type.typname` of the type underneath, domains resolved."""
    type_kind: TypeKind
    precision: int | None
    """Of a numeric with a type modifier."""
    scale: int | None
    not_null: bool
    comment: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKey:
    """A reference from this relation to another one of the same database."""

    name: str
    columns: tuple[str, ...]
    referenced_schema: str
    referenced_table: str
    referenced_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """What identifies a row and what it refers to.

    `failed` holds the reason when reading them failed. Empty keys with `failed` set mean "not known", never "none".
    """

    primary: tuple[str, ...] = ()
    foreign: tuple[ForeignKey, ...] = ()
    failed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """One table, partitioned table or materialised view. `oid` names it for life."""

    oid: int
    schema: str
    name: str
    kind: RelationKind
    columns: tuple[Column, ...]
    keys: Keys
    estimated_rows: int | None
    """The planner's estimate; none where the relation was never analysed."""
    size_bytes: int
    comment: str | None

    @property
    def qualified_name(self) -> str:
        """`schema.name`, as a person says it."""
        return f"{self.schema}.{self.name}"

    @property
    def shape(self) -> tuple[object, ...]:
        """What must not change between introspection and reading: identity, kind, and every column's name and type."""
        return (
            self.oid,
            self.kind,
            tuple((c.attnum, c.name, c.declared_type, c.precision, c.scale) for c in self.columns),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Introspection:
    """Everything found in one source at one moment."""

    system_identifier: int
    database: str
    server_version: str
    relations: tuple[Relation, ...]

    @property
    def oids(self) -> frozenset[int]:
        """The oids of all relations that exist now."""
        return frozenset(relation.oid for relation in self.relations)

    def find(self, qualified_name: str) -> Relation | None:
        """The relation called `schema.name`, or plain `name` for one in `public`."""
        wanted = {qualified_name, f"public.{qualified_name}"}
        return next((r for r in self.relations if r.qualified_name in wanted), None)
