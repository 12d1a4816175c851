"""From a relation to its mapping."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from carbon_pipeline.schema.mapping import map_relation
from carbon_pipeline.schema.row_identity import IDENTITY_COLUMNS
from carbon_pipeline.schema.type_map import Fidelity
from carbon_pipeline.source.relation import Column, Keys, Relation, RelationKind, TypeKind


def column(
    attnum: int, name: str, type_name: str = "int4", *, kind: TypeKind = TypeKind.BUILT_IN,
    precision: int | None = None, scale: int | None = None,
) -> Column:  # fmt: skip
    """A column with nothing special about it."""
    return Column(
        attnum=attnum, name=name, declared_type=type_name, type_name=type_name, type_kind=kind, precision=precision,
        scale=scale, not_null=False, comment=None,
    )  # fmt: skip


def relation(*columns: Column) -> Relation:
    """A table with these columns."""
    return Relation(
        oid=1, schema="public", name="t", kind=RelationKind.TABLE, columns=columns, keys=Keys(), estimated_rows=None,
        size_bytes=0, comment=None,
    )  # fmt: skip


def names(*sources: str) -> list[str]:
    """The lake's names of columns with these source names."""
    return [c.name for c in map_relation(relation(*(column(i, n) for i, n in enumerate(sources, 1)))).columns]


def test_a_plain_name_stays() -> None:
    """Mixed case included: it is the column's own."""
    assert names("id", "createdAt", "_x1", "SELECT") == ["id", "createdAt", "_x1", "SELECT"]


def test_names_that_collide_are_all_hashed() -> None:
    """Names that differ only in case are one name to many engines; none of them keeps it."""
    made = names("id", "Id", "other")
    assert made[2] == "other"
    assert all(name.startswith("id_") for name in made[:2])
    assert made[0] != made[1]


def test_our_own_columns_are_not_to_be_had() -> None:
    """A source column called like an identity column gets another name, in any case."""
    for name in IDENTITY_COLUMNS:
        assert {n.lower() for n in names(name, "x")} & set(IDENTITY_COLUMNS) == set()
        assert {n.lower() for n in names(name.upper())} & set(IDENTITY_COLUMNS) == set()


def test_a_name_does_not_depend_on_its_neighbours_order() -> None:
    """Reordering or dropping an unrelated column renames nothing."""
    assert names("a b", "c") == list(reversed(names("c", "a b")))
    assert names("a b", "c")[0] == names("a b")[0]


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=63),
                unique=True, max_size=20))  # fmt: skip
def test_names_never_collide(sources: list[str]) -> None:
    """Whatever the source calls its columns, the lake's names differ even without case."""
    made = names(*sources)
    assert len({name.lower() for name in made}) == len(sources)
    assert all(0 < len(name) <= 63 for name in made)


def test_the_schema_of_the_batches() -> None:
    """One field per column, in the source's order, of the base type's Arrow type."""
    mapping = map_relation(
        relation(
            column(2, "id", "int8"),
            column(5, "price", "numeric", precision=10, scale=2),
            column(6, "mood", "public.mood", kind=TypeKind.ENUM),
            column(9, "own", "own.int4", kind=TypeKind.OTHER),
        )
    )
    assert mapping.arrow_schema == pa.schema(
        [("id", pa.int64()), ("price", pa.decimal128(10, 2)), ("mood", pa.string()), ("own", pa.string())]
    )
    assert [c.attnum for c in mapping.columns] == [2, 5, 6, 9]
    assert [c.receipt.fidelity for c in mapping.columns] == [
        Fidelity.EXACT, Fidelity.EXACT, Fidelity.EXACT, Fidelity.TEXT,
    ]  # fmt: skip


def test_a_relation_without_columns_has_a_mapping() -> None:
    """PostgreSQL allows it."""
    assert map_relation(relation()).arrow_schema == pa.schema([])
