"""Reading back: a snapshot's files, and the digest of what they hold, held against its definition spelt out."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import ManifestContent, ManifestFile

from carbon_pipeline.errors import LakeError, LakeUnreachable, StorageFailed
from carbon_pipeline.lake.iceberg import canonical, files, published
from carbon_pipeline.lake.iceberg.canonical import canonical_texts
from carbon_pipeline.schema.mapping import Mapping
from carbon_pipeline.schema.row_identity import IDENTITY_COLUMNS
from carbon_pipeline.verify.digest import Digest
from carbon_pipeline_tests.lake.workshop import (
    GOODS,
    ID,
    NOTE,
    PRICE,
    Workshop,
    batch_of,
    column,
    goods,
    mapping_of,
)

FLOATS = [0.0, -0.0, 1.5, float("nan"), float("inf"), float("-inf"), None, 0.1]
NEGATIVE_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]

CASES: dict[str, tuple[Sequence[object], Sequence[str | None]]] = {
    "bool": ([True, False, None], ["t", "f", None]),
    "int4": ([0, -1, 2**31 - 1, -(2**31), None], ["0", "-1", "2147483647", "-2147483648", None]),
    "int2": ([7, None], ["7", None]),
    "int8": ([2**63 - 1, -(2**63)], ["9223372036854775807", "-9223372036854775808"]),
    "text": (["", "ä", "n;", "🙂" * 400, None, ";1:x"], ["", "ä", "n;", "🙂" * 400, None, ";1:x"]),
    "float8": (
        [*FLOATS, NEGATIVE_NAN],
        [
            *("0000000000000000", "8000000000000000", "3ff8000000000000", "7ff8000000000000", "7ff0000000000000"),
            *("fff0000000000000", None, "3fb999999999999a", "7ff8000000000000"),
        ],
    ),
    "float4": (
        FLOATS,
        ["00000000", "80000000", "3fc00000", "7fc00000", "7f800000", "ff800000", None, "3dcccccd"],
    ),
    "date": ([0, -1, 2932897, None], ["0", "-1", "2932897", None]),
    "time": ([0, 86_399_999_999, None], ["0", "86399999999", None]),
    "timestamp": ([0, -1, 2**62, None], ["0", "-1", str(2**62), None]),
    "timestamptz": ([0, -(2**62), None], ["0", str(-(2**62)), None]),
    "bytea": ([b"", b"\x00\xff", None, b"abc" * 500], ["", "00ff", None, "616263" * 500]),
    "uuid": ([bytes(16), bytes(range(16)), None], ["0" * 32, bytes(range(16)).hex(), None]),
}
"""By source type: values as Arrow's storage has them, and their canonical texts."""


def stored(mapping: Mapping, place: int, values: Sequence[object]) -> pa.Array:
    """Values of one column, temporal ones from their integers."""
    wanted = mapping.arrow_schema.field(place).type
    if wanted == pa.uuid():
        return pa.ExtensionArray.from_storage(wanted, pa.array(values, pa.binary(16)))
    if pa.types.is_date32(wanted):
        return pa.array(values, pa.int32()).view(wanted)
    if pa.types.is_temporal(wanted):
        return pa.array(values, pa.int64()).view(wanted)
    return pa.array(values, wanted)


def piece(text: str | None) -> str:
    """One column's piece, as the definition says."""
    return "n;" if text is None else f"{len(text.encode())}:{text};"


def digest_of(texts: Iterable[str]) -> Digest:
    """The definition, spelt out."""
    sums = [int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:8], "big") for text in texts]
    return Digest(rows=len(sums), checksum=sum(sums) % 2**64)


def goods_texts(rows: int) -> list[str]:
    """The canonical texts of `goods(rows)`."""
    return ["".join(map(piece, (str(n), f"note {n}", f"{n:032x}", str(n)))) for n in range(rows)]


@pytest.mark.parametrize("type_name", CASES)
def test_every_type_has_its_canonical_text(workshop: Workshop, type_name: str) -> None:
    """A value's digest, written to a file and read back, is that of its text by definition; nulls are apart."""
    values, texts = CASES[type_name]
    mapping = mapping_of(column(1, "v", type_name))
    batch = pa.RecordBatch.from_arrays([stored(mapping, 0, values)], schema=mapping.arrow_schema)
    workshop.publish([batch], mapping)
    assert workshop.reader.digest(workshop.dataset, mapping) == digest_of([piece(text) for text in texts])


@pytest.mark.parametrize(("precision", "scale"), [(10, 2), (18, 18), (19, 0), (38, 38)])
def test_decimals_are_their_unscaled_digits(workshop: Workshop, precision: int, scale: int) -> None:
    """Up to the largest precision, negative ones and zero included."""
    unscaled = [0, 1, -1, 10**precision - 1, -(10**precision) + 1, None]
    values: list[object] = [None if v is None else Decimal(v).scaleb(-scale) for v in unscaled]
    if precision == 38:  # the decimal context of Python rounds at 28 digits
        values = [None if v is None else Decimal((int(v < 0), tuple(map(int, str(abs(v)))), -scale)) for v in unscaled]
    mapping = mapping_of(column(1, "v", "numeric", precision, scale))
    workshop.publish([batch_of(mapping, values)], mapping)
    expected = digest_of([piece(None if v is None else str(v)) for v in unscaled])
    assert workshop.reader.digest(workshop.dataset, mapping) == expected


@pytest.mark.parametrize("type_name", CASES)
def test_a_slice_has_the_texts_of_its_rows(type_name: str) -> None:
    """Arrow arrays may begin in the middle of their buffers."""
    values, texts = CASES[type_name]
    mapping = mapping_of(column(1, "v", type_name))
    array = stored(mapping, 0, values)
    for start in range(len(values) + 1):
        part = array.slice(start)
        found = canonical_texts([part], [mapping.columns[0].base], len(part)).to_pylist()
        assert found == [piece(text) for text in texts[start:]]
        assert canonical.checksum(canonical_texts([part], [mapping.columns[0].base], len(part))) == (
            digest_of([piece(text) for text in texts[start:]]).checksum
        )


def test_digest_is_over_all_files_and_batches(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the rows lie in files, row groups and batches, the digest is the same."""
    workshop.publish(goods(1000))
    whole = workshop.reader.digest(workshop.dataset, GOODS)
    assert whole == digest_of(goods_texts(1000))
    monkeypatch.setattr(files, "ROW_GROUP_ROWS_MAX", 100)
    monkeypatch.setattr(files, "FILE_ROWS_MAX", 300)
    monkeypatch.setattr(published, "BATCH_ROWS_MAX", 70)
    workshop.publish(goods(1000, batch_rows=50))
    assert workshop.reader.digest(workshop.dataset, GOODS) == whole


@pytest.mark.parametrize("low", [-(2**63), -3, 2**63 - 4])
def test_few_different_integers_are_texts_like_others(workshop: Workshop, low: int) -> None:
    """Columns of few values go by way of a table; at either end of the type as well."""
    mapping = mapping_of(column(1, "a", "int8"), column(2, "b", "int8"))
    values: list[object] = [None if n % 5 == 4 else low + n % 4 for n in range(200)]
    workshop.publish([batch_of(mapping, values, values[::-1])], mapping)
    texts = [piece(None if v is None else str(v)) for v in values]
    expected = digest_of([one + other for one, other in zip(texts, texts[::-1], strict=True)])
    assert workshop.reader.digest(workshop.dataset, mapping) == expected


def test_equal_rows_count_each(workshop: Workshop) -> None:
    """Two equal rows do not cancel each other out, and an empty table has a digest of its own."""
    mapping = mapping_of(ID)
    workshop.publish([batch_of(mapping, [5, 5])], mapping)
    assert workshop.reader.digest(workshop.dataset, mapping) == digest_of(["1:5;", "1:5;"])
    workshop.publish([], mapping)
    assert workshop.reader.digest(workshop.dataset, mapping) == Digest(rows=0, checksum=0)


def test_a_table_without_columns_has_rows(workshop: Workshop) -> None:
    """PostgreSQL allows tables without columns; their rows are counted."""
    mapping = mapping_of()
    batch = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    workshop.publish([batch], mapping)
    assert workshop.reader.digest(workshop.dataset, mapping) == digest_of(["", ""])


def test_columns_are_found_by_field_id(workshop: Workshop) -> None:
    """A rename at the source changes no digest, and neither does the order of the file's columns."""
    workshop.publish(goods(50))
    before = workshop.reader.digest(workshop.dataset, GOODS)
    renamed = mapping_of(column(1, "note", "int4"), column(2, "id", "text"), *GOODS.relation.columns[2:])
    assert workshop.reader.digest(workshop.dataset, renamed) == before
    [path] = workshop.data_files()
    table = pq.read_table(path)
    scrambled = table.select(table.schema.names[::-1]).rename_columns([f"c{n}" for n in range(table.num_columns)])
    pq.write_table(scrambled, path)
    assert workshop.reader.digest(workshop.dataset, renamed) == before


def test_a_field_that_a_file_lacks_is_null(workshop: Workshop) -> None:
    """As Iceberg says of files that are older than a column."""
    mapping = mapping_of(ID, NOTE)
    workshop.publish([batch_of(mapping, [1, 2], ["a", "b"])], mapping)
    [path] = workshop.data_files()
    pq.write_table(pq.read_table(path).drop_columns(["note"]), path)
    assert workshop.reader.digest(workshop.dataset, mapping) == digest_of(["1:1;n;", "1:2;n;"])


def test_a_changed_value_changes_the_digest(workshop: Workshop) -> None:
    """What the digest is for."""
    workshop.publish(goods(50))
    before = workshop.reader.digest(workshop.dataset, GOODS)
    [path] = workshop.data_files()
    table = pq.read_table(path)
    notes = table["note"].to_pylist()
    pq.write_table(table.set_column(1, table.schema.field("note"), pa.array([*notes[:-1], "other"])), path)
    after = workshop.reader.digest(workshop.dataset, GOODS)
    assert after.rows == before.rows
    assert after.checksum != before.checksum


@pytest.mark.parametrize(
    "now",
    [
        mapping_of(ID, NOTE),
        mapping_of(ID, NOTE, column(3, "mark", "uuid"), PRICE, column(5, "new", "text")),
        mapping_of(column(1, "id", "int8"), NOTE, column(3, "mark", "uuid"), PRICE),
        mapping_of(ID, NOTE, column(3, "mark", "uuid"), column(4, "price", "numeric", 12, 2)),
        mapping_of(ID, NOTE, column(3, "mark", "uuid"), PRICE, oid=99),
    ],
    ids=["dropped", "added", "retyped", "widened", "made again"],
)
def test_another_shape_at_the_source_asks_for_a_sync(workshop: Workshop, now: Mapping) -> None:
    """A digest over other columns or types would compare nothing; the error says what to do."""
    workshop.publish(goods(5))
    with pytest.raises(LakeError) as caught:
        workshop.reader.digest(workshop.dataset, now)
    assert "Sync the table again" in caught.value.remedy


def test_what_was_never_published_has_no_files(workshop: Workshop) -> None:
    """Neither without a table, nor with one that has no snapshot; a digest of it is an error."""
    assert workshop.reader.files(workshop.dataset) is None
    workshop.open()
    assert workshop.reader.files(workshop.dataset) is None
    with pytest.raises(LakeError, match="nothing was ever published"):
        workshop.reader.digest(workshop.dataset, GOODS)


def test_a_table_that_is_gone_is_an_error(workshop: Workshop) -> None:
    """What was committed once and is not there is lost, not unpublished."""
    workshop.publish(goods(5))
    workshop.catalogs.open("main").drop_table(workshop.dataset.identifier)
    with pytest.raises(LakeError, match="gone from the catalog"):
        workshop.reader.files(workshop.as_committed())


def test_files_are_the_snapshots_own(workshop: Workshop) -> None:
    """Main's data files with the fields' ids and types; replaced files, still on disk, are not among them."""
    workshop.publish(goods(5))
    facts = workshop.publish(goods(7)).facts
    found = workshop.reader.files(workshop.dataset)
    assert found is not None
    assert found.snapshot_id == facts.snapshot_id
    assert found.location == workshop.dataset.location
    assert len(workshop.data_files()) == 2
    [path] = found.paths
    assert path.startswith(found.location)
    assert pq.ParquetFile(path.removeprefix("file://")).metadata.num_rows == 7
    assert [(f.name, f.type) for f in found.fields] == [
        *[("id", "int"), ("note", "string"), ("mark", "uuid"), ("price", "decimal(10, 2)")],
        *zip(IDENTITY_COLUMNS, ("long", "uuid", "timestamptz"), strict=True),
    ]


def test_an_empty_snapshot_has_no_files_but_fields(workshop: Workshop) -> None:
    """Published, and empty: not the same as never published."""
    workshop.publish([])
    found = workshop.reader.files(workshop.dataset)
    assert found is not None
    assert found.paths == ()
    assert len(found.fields) == 7


def test_another_datasets_table_is_not_read(workshop: Workshop) -> None:
    """The owner is checked on the way out as on the way in."""
    workshop.publish(goods(5))
    workshop.dataset = workshop.new_dataset("t")
    with pytest.raises(LakeError, match=r"is not default\.t's"):
        workshop.reader.files(workshop.dataset)


def test_delete_files_are_not_ignored(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that another engine deleted by a delete file would come back to life; the reader refuses instead."""
    workshop.publish(goods(5))
    monkeypatch.setattr(ManifestFile, "content", property(lambda _: ManifestContent.DELETES))
    with pytest.raises(LakeError, match="delete files"):
        workshop.reader.files(workshop.dataset)


@pytest.mark.parametrize("damage", ["gone", "cut", "empty"])
def test_a_damaged_file_is_a_storage_failure(workshop: Workshop, damage: str) -> None:
    """Missing, cut short or emptied: an error of ours that names the dataset and no value."""
    workshop.publish(goods(500))
    [path] = workshop.data_files()
    whole = path.read_bytes()
    path.unlink()
    if damage != "gone":
        path.write_bytes(whole[:100] if damage == "cut" else b"")
    with pytest.raises(StorageFailed, match=r"default\.t"):
        workshop.reader.digest(workshop.dataset, GOODS)


def test_a_catalog_that_is_away_is_unreachable(tmp_path: Path) -> None:
    """A catalog that cannot be opened is no empty lake."""
    workshop = Workshop(tmp_path / "away")
    workshop.publish(goods(5))
    (tmp_path / "away" / "catalog.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(LakeUnreachable):
        Workshop(tmp_path / "away").reader.files(workshop.dataset)
