"""What every PostgreSQL type becomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from carbon_pipeline.schema.mapping import ARROW, arrow_type
from carbon_pipeline.schema.type_map import EXACT, WIDENED, BaseKind, BaseType, Fidelity, base_type_of

NUMERICS = ((1, 0), (10, 2), (38, 0), (38, 38), (39, 0), (50, 20), (5, -2), (37, -1), (37, -2), (3, 5), (1000, 1000))
UNKNOWN = ("json", "jsonb", "interval", "money", "timetz", "inet", "char", "text[]", "int4range", "own.text", "xml")


def rows() -> Iterator[tuple[str, str, str, str, str]]:
    """PostgreSQL type, base type, Arrow type, fidelity, reason: the whole map, and examples of what it leaves out."""
    named = [(name, {"is_enum": False}) for name in (*EXACT, *WIDENED, "numeric", *UNKNOWN)]
    for name, arguments in [*named, ("own.mood (enum)", {"is_enum": True})]:
        base, receipt = base_type_of(name, **arguments)
        yield name, str(base), str(arrow_type(base)), receipt.fidelity, receipt.reason or ""
    for precision, scale in NUMERICS:
        base, receipt = base_type_of("numeric", is_enum=False, precision=precision, scale=scale)
        yield f"numeric({precision},{scale})", str(base), str(arrow_type(base)), receipt.fidelity, receipt.reason or ""


@pytest.mark.golden
def test_the_whole_map(golden: Callable[[str, str], None]) -> None:
    """Every row, as a table that a person can read and a diff can show."""
    table = [("PostgreSQL", "base type", "Arrow", "fidelity", "reason"), *rows()]
    widths = [max(len(row[i]) for row in table) for i in range(5)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    golden("type_map.txt", "\n".join(lines) + "\n")


def test_every_base_type_has_an_arrow_type() -> None:
    """Decimals take theirs from the column."""
    assert set(ARROW) | {BaseKind.DECIMAL} == set(BaseKind)
    assert arrow_type(BaseType(kind=BaseKind.DECIMAL, precision=12, scale=3)) == pa.decimal128(12, 3)


def test_no_type_is_in_two_rows() -> None:
    """Exact or widened, not both."""
    assert EXACT.keys() & WIDENED.keys() == set()


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_the_map_does_not_know_is_said_to_be_text(name: str) -> None:
    """Never silently: the receipt names the type."""
    base, receipt = base_type_of(name, is_enum=False)
    assert base.kind is BaseKind.TEXT
    assert receipt.fidelity is Fidelity.TEXT
    assert name in (receipt.reason or "")


@pytest.mark.parametrize(
    ("precision", "scale", "expected"),
    [(5, -2, "decimal(7,0)"), (3, 5, "decimal(5,5)"), (37, -1, "decimal(38,0)"), (38, 38, "decimal(38,38)")],
)
def test_scales_that_iceberg_does_not_have(precision: int, scale: int, expected: str) -> None:
    """A negative scale, or one above the precision, becomes the decimal that holds every such value."""
    base, receipt = base_type_of("numeric", is_enum=False, precision=precision, scale=scale)
    assert str(base) == expected
    assert receipt.fidelity is Fidelity.EXACT


@pytest.mark.parametrize(("precision", "scale"), [(39, 0), (37, -2), (None, None), (2, 39)])
def test_numerics_that_no_decimal_holds_become_text(precision: int | None, scale: int | None) -> None:
    """Thirty-eight digits are the limit; without a bound there is no promise."""
    base, receipt = base_type_of("numeric", is_enum=False, precision=precision, scale=scale)
    assert base.kind is BaseKind.TEXT
    assert receipt.fidelity is Fidelity.TEXT
    assert receipt.reason


def test_an_enum_is_an_enum_whatever_it_is_called() -> None:
    """Its labels are text, exactly; its name does not matter."""
    assert base_type_of("own.int4", is_enum=True)[0].kind is BaseKind.TEXT
    assert base_type_of("int4", is_enum=True)[1].fidelity is Fidelity.EXACT
