"""The type map: PostgreSQL type → base type, one row per type.

There is no "else string": a type without a row becomes text *with a receipt that says so*. The base types are the ones
that the lake knows natively; what Iceberg type each becomes is the second table, in `lake/iceberg/fields.py`.
PostgreSQL manual, chapter "Data Types"; Iceberg specification, "Primitive Types".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class BaseKind(StrEnum):
    """The native base types."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    BIGINT = "bigint"
    DECIMAL = "decimal"
    REAL = "real"
    DOUBLE = "double"
    TEXT = "text"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    UUID = "uuid"
    BINARY = "binary"


class Fidelity(StrEnum):
    """What a translation does to a column's values."""

    EXACT = "exact"
    WIDENED = "widened"
    """Every value exact, in a type that could hold more."""
    TEXT = "as text"
    """Every value kept as PostgreSQL's own text output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseType:
    """A base type; precision and scale belong to decimals only."""

    kind: BaseKind
    precision: int | None = None
    scale: int | None = None

    def __str__(self) -> str:
        if self.kind is BaseKind.DECIMAL:
            return f"decimal({self.precision},{self.scale})"
        return self.kind.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What the translation of one column does, and why."""

    fidelity: Fidelity
    reason: str | None = None


DECIMAL_PRECISION_MAX = 38
"""Iceberg specification, "Primitive Types": decimal precision is at most 38."""

EXACT: dict[str, BaseKind] = {
    "bool": BaseKind.BOOLEAN,
    "int4": BaseKind.INTEGER,
    "int8": BaseKind.BIGINT,
    "float4": BaseKind.REAL,
    "float8": BaseKind.DOUBLE,
    "text": BaseKind.TEXT,
    "varchar": BaseKind.TEXT,
    "bpchar": BaseKind.TEXT,
    "name": BaseKind.TEXT,
    "date": BaseKind.DATE,
    "time": BaseKind.TIME,
    "timestamp": BaseKind.TIMESTAMP,
    "timestamptz": BaseKind.TIMESTAMPTZ,
    "uuid": BaseKind.UUID,
    "bytea": BaseKind.BINARY,
}
"""`pg_type.typname` → base type, for types whose every finite value the base type holds."""

WIDENED: dict[str, BaseKind] = {
    "int2": BaseKind.INTEGER,
    "oid": BaseKind.BIGINT,
}
"""`pg_type.typname` → base type, for types that have no counterpart of their own size."""


def _numeric(precision: int | None, scale: int | None) -> tuple[BaseType, Receipt]:
    if precision is None or scale is None:
        return _as_text("numeric without a precision has no bound that a decimal type could promise")
    # PostgreSQL allows a negative scale (rounding left of the point) and a scale above the precision; Iceberg neither.
    if scale < 0:
        precision, scale = precision - scale, 0
    precision = max(precision, scale)
    if precision > DECIMAL_PRECISION_MAX:
        return _as_text(f"numeric of {precision} digits is over Iceberg's {DECIMAL_PRECISION_MAX}")
    return BaseType(kind=BaseKind.DECIMAL, precision=precision, scale=scale), Receipt(fidelity=Fidelity.EXACT)


def _as_text(reason: str) -> tuple[BaseType, Receipt]:
    return BaseType(kind=BaseKind.TEXT), Receipt(fidelity=Fidelity.TEXT, reason=reason)


def base_type_of(
    type_name: str, *, is_enum: bool, precision: int | None = None, scale: int | None = None
) -> tuple[BaseType, Receipt]:
    """The base type of a PostgreSQL type, and the receipt of the translation.

    *type_name* is `pg_type.typname` with domains resolved; *precision* and *scale* are those of a numeric.
    """
    if is_enum:
        return BaseType(kind=BaseKind.TEXT), Receipt(fidelity=Fidelity.EXACT, reason="enum label")
    if type_name == "numeric":
        return _numeric(precision, scale)
    if type_name in EXACT:
        return BaseType(kind=EXACT[type_name]), Receipt(fidelity=Fidelity.EXACT)
    if type_name in WIDENED:
        return BaseType(kind=WIDENED[type_name]), Receipt(fidelity=Fidelity.WIDENED)
    return _as_text(f"{type_name} has no native type in the lake")
