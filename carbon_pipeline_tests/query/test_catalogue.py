"""Which name stands for which snapshot."""

from __future__ import annotations

from carbon_pipeline.lake.reader import LakeField, SnapshotFiles
from carbon_pipeline.query.catalogue import NamedTable, catalogue, quoted
from carbon_pipeline.schema.row_identity import IDENTITY_COLUMNS


def table(schema: str, name: str, *fields: str) -> NamedTable:
    """A dataset with these columns and the identity columns."""
    names = (*(fields or ("id",)), *IDENTITY_COLUMNS) if fields != ("nothing",) else IDENTITY_COLUMNS
    return NamedTable(
        schema=schema,
        name=name,
        files=SnapshotFiles(
            snapshot_id=1,
            location="file:///w",
            fields=tuple(LakeField(field_id=n, name=name, type="int") for n, name in enumerate(names, start=1)),
            paths=("file:///w/a.parquet",),
        ),
    )


def test_default_is_searched_first() -> None:
    """A bare name means the dataset in `default`; the others follow in the order of the alphabet."""
    found = catalogue([table("zoo", "t"), table("default", "t"), table("art", "t"), table("art", "u")])
    assert found.search_path == ("default", "art", "zoo")
    assert found.shortest_names == ("t", "art.t", "u", "zoo.t")


def test_identity_columns_are_left_out() -> None:
    """They are the lake's, not the source's; who asks for them gets them."""
    [plain] = catalogue([table("default", "t", "a", "b")]).views
    assert [field.name for field in plain.fields] == ["a", "b"]
    [whole] = catalogue([table("default", "t", "a")], identity=True).views
    assert [field.name for field in whole.fields] == ["a", *IDENTITY_COLUMNS]


def test_schemas_of_the_engine_keep_their_meaning() -> None:
    """A lakehouse schema called like one of the engine's own gets an underscore behind it."""
    found = catalogue([table("pg_catalog", "t"), table("temp", "t")])
    assert found.search_path == ("pg_catalog_", "temp_")


def test_a_dataset_without_columns_has_no_view() -> None:
    """SQL has no table without columns."""
    assert catalogue([table("default", "t", "nothing")]).views == ()
    assert len(catalogue([table("default", "t", "nothing")], identity=True).views) == 1


def test_names_are_quoted_where_they_must_be() -> None:
    """A name is shown as it has to be typed."""
    assert catalogue([table("default", "2024_sales"), table("x-y", "Odd")]).shortest_names == ('"2024_sales"', '"Odd"')
    assert quoted('a"b') == '"a""b"'
