"""What introspection finds."""

from __future__ import annotations

import time

import pytest

from carbon_pipeline.schema.mapping import map_relation
from carbon_pipeline.source.postgres.introspect import QUERIES
from carbon_pipeline.source.relation import Column, ForeignKey, Keys, RelationKind, TypeKind
from carbon_pipeline_tests.source.postgres.conftest import Database


def column_types(database: Database, name: str) -> dict[str, tuple[str, TypeKind, int | None, int | None]]:
    """Name → what stands underneath, with precision and scale."""
    return {c.name: (c.type_name, c.type_kind, c.precision, c.scale) for c in database.relation(name).columns}


def test_tables_of_every_schema_are_found_and_nothing_else(database: Database) -> None:
    """Tables, partitioned parents and materialised views; no partitions, views, sequences, temporary or system ones."""
    database.execute("""
        CREATE SCHEMA "Other Schema";
        CREATE TABLE t (a int); CREATE TABLE "Other Schema"."T.x" (a int); CREATE UNLOGGED TABLE u (a int);
        CREATE TABLE p (a int) PARTITION BY RANGE (a); CREATE TABLE p_1 PARTITION OF p FOR VALUES FROM (0) TO (9);
        CREATE TABLE child (b int) INHERITS (t); CREATE VIEW v AS SELECT 1; CREATE SEQUENCE s;
        CREATE MATERIALIZED VIEW m AS SELECT 1 AS one; CREATE TEMPORARY TABLE passing (a int);
    """)
    found = database.source().introspect()
    assert {(r.qualified_name, r.kind) for r in found.relations} == {
        ("Other Schema.T.x", RelationKind.TABLE),
        ("public.child", RelationKind.TABLE),
        ("public.m", RelationKind.MATERIALISED_VIEW),
        ("public.p", RelationKind.PARTITIONED),
        ("public.t", RelationKind.TABLE),
        ("public.u", RelationKind.TABLE),
    }
    assert found.database == database.connection.database
    assert found.system_identifier == database.value("SELECT system_identifier FROM pg_control_system()")
    assert found.server_version == database.value("SHOW server_version")


def test_columns_keep_their_numbers_and_order(database: Database) -> None:
    """Dropped columns leave gaps in the numbers; generated ones are columns like others; comments come along."""
    database.execute("""
        CREATE TABLE t (a int NOT NULL, gone text, b varchar(20), doubled int GENERATED ALWAYS AS (a * 2) STORED);
        ALTER TABLE t DROP COLUMN gone, ADD COLUMN late timestamptz(3);
        COMMENT ON COLUMN t.b IS 'said of b'; COMMENT ON TABLE t IS 'said of t';
    """)
    relation = database.relation("t")
    assert relation.comment == "said of t"
    assert [(c.attnum, c.name, c.declared_type, c.not_null, c.comment) for c in relation.columns] == [
        (1, "a", "integer", True, None),
        (3, "b", "character varying(20)", False, "said of b"),
        (4, "doubled", "integer", False, None),
        (5, "late", "timestamp(3) with time zone", False, None),
    ]


def test_domains_are_resolved_to_what_they_stand_on(database: Database) -> None:
    """However deep, with the modifier that applies; over an enum to the enum, over an array to the array."""
    database.execute("""
        CREATE TYPE mood AS ENUM ('sad', 'ok');
        CREATE DOMAIN amount AS numeric(12, 3) CHECK (VALUE > 0); CREATE DOMAIN price AS amount NOT NULL;
        CREATE DOMAIN feeling AS mood; CREATE DOMAIN list AS int[]; CREATE DOMAIN "int4" AS text;
        CREATE TABLE t (a amount, p price, f feeling, l list, i public."int4");
    """)
    assert column_types(database, "t") == {
        "a": ("numeric", TypeKind.BUILT_IN, 12, 3),
        "p": ("numeric", TypeKind.BUILT_IN, 12, 3),
        "f": ("public.mood", TypeKind.ENUM, None, None),
        "l": ("integer[]", TypeKind.OTHER, None, None),
        "i": ("text", TypeKind.BUILT_IN, None, None),
    }
    assert database.relation("t").columns[1].declared_type == "public.price"


def test_precision_and_scale_of_numerics(database: Database) -> None:
    """As declared, a negative scale and one above the precision included; none where none was declared."""
    if database.admin.info.server_version < 150000:
        pytest.skip("negative scales came with PostgreSQL 15")
    database.execute("""
        CREATE TABLE t (free numeric, plain numeric(10), usual numeric(10, 2), rounded numeric(5, -2),
                        tiny numeric(3, 5), huge numeric(1000, 1000), low numeric(1, -1000));
    """)
    assert {name: (p, s) for name, (_, _, p, s) in column_types(database, "t").items()} == {
        "free": (None, None),
        "plain": (10, 0),
        "usual": (10, 2),
        "rounded": (5, -2),
        "tiny": (3, 5),
        "huge": (1000, 1000),
        "low": (1, -1000),
    }


def test_a_type_of_ones_own_is_never_taken_for_the_built_in_one(database: Database) -> None:
    """Whatever it is called: outside pg_catalog a type's name carries its schema, and the map does not know it."""
    database.execute("""
        CREATE SCHEMA own; CREATE TYPE own.text AS (a int); CREATE TYPE own.int4 AS ENUM ('1');
        CREATE TYPE own.float8 AS RANGE (subtype = numeric); CREATE TYPE own.int8;
        CREATE FUNCTION own.read(cstring) RETURNS own.int8 LANGUAGE internal IMMUTABLE STRICT AS 'int8in';
        CREATE FUNCTION own.show(own.int8) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'int8out';
        CREATE TYPE own.int8 (INPUT = own.read, OUTPUT = own.show, LIKE = pg_catalog.int8);
        CREATE TABLE t (a own.text, b own.int4, c own.float8, d own.int4[], e text[], f int4range, g oidvector,
                        h own.int8);
    """)
    types = column_types(database, "t")
    assert {name: (type_name, kind) for name, (type_name, kind, _, _) in types.items()} == {
        "a": ("own.text", TypeKind.OTHER),
        "b": ("own.int4", TypeKind.ENUM),
        "c": ("own.float8", TypeKind.OTHER),
        "d": ("own.int4[]", TypeKind.OTHER),
        "e": ("text[]", TypeKind.OTHER),
        "f": ("int4range", TypeKind.OTHER),
        "g": ("oidvector", TypeKind.OTHER),
        "h": ("own.int8", TypeKind.OTHER),
    }
    assert {c.base.kind.value for c in map_relation(database.relation("t")).columns} == {"text"}


def test_keys_keep_the_order_of_their_columns(database: Database) -> None:
    """Of the key, not of the table; carried columns are left out; references may cross schemas or stay at home."""
    database.execute("""
        CREATE SCHEMA far; CREATE TABLE far.target (x int, y text, z int, PRIMARY KEY (y, x) INCLUDE (z));
        CREATE TABLE t (id int PRIMARY KEY, above int CONSTRAINT up REFERENCES t, b int, a text,
                        CONSTRAINT away FOREIGN KEY (b, a) REFERENCES far.target (x, y));
    """)
    assert database.relation("far.target").keys == Keys(primary=("y", "x"))
    assert database.relation("t").keys == Keys(
        primary=("id",),
        foreign=(
            ForeignKey(name="away", columns=("b", "a"), referenced_schema="far", referenced_table="target",
                       referenced_columns=("x", "y")),
            ForeignKey(name="up", columns=("above",), referenced_schema="public", referenced_table="t",
                       referenced_columns=("id",)),
        ),
    )  # fmt: skip


def test_keys_of_partitioned_tables(database: Database) -> None:
    """The parent has them; a reference to a partitioned table is one, however many partitions there are."""
    database.execute("""
        CREATE TABLE target (id int PRIMARY KEY) PARTITION BY RANGE (id);
        CREATE TABLE target_1 PARTITION OF target FOR VALUES FROM (0) TO (5);
        CREATE TABLE target_2 PARTITION OF target FOR VALUES FROM (5) TO (9);
        CREATE TABLE p (id int, to_target int REFERENCES target, PRIMARY KEY (id)) PARTITION BY RANGE (id);
        CREATE TABLE p_1 PARTITION OF p FOR VALUES FROM (0) TO (9);
    """)
    keys = database.relation("p").keys
    assert keys.primary == ("id",)
    assert [key.referenced_table for key in keys.foreign] == ["target"]


def test_keys_that_cannot_be_read_are_unknown_and_not_none(database: Database) -> None:
    """Columns are still there, and the keys say why they are not."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY); REVOKE SELECT ON pg_catalog.pg_constraint FROM PUBLIC")
    found = database.source(reader=True).introspect().find("t")
    assert found is not None
    assert [c.name for c in found.columns] == ["id"]
    assert found.keys.primary == ()
    assert found.keys.failed is not None
    assert "42501" in found.keys.failed


def test_estimates_and_sizes(database: Database) -> None:
    """None before anyone counted; over all leaves of a partitioned table afterwards, with the bytes of all of them."""
    database.execute("""
        CREATE TABLE t (a int); INSERT INTO t SELECT generate_series(1, 1000);
        CREATE TABLE p (a int, b text) PARTITION BY RANGE (a);
        CREATE TABLE p_low PARTITION OF p FOR VALUES FROM (0) TO (100) PARTITION BY LIST (b);
        CREATE TABLE p_low_x PARTITION OF p_low FOR VALUES IN ('x'); CREATE TABLE p_low_y PARTITION OF p_low DEFAULT;
        CREATE TABLE p_high PARTITION OF p FOR VALUES FROM (100) TO (200);
        INSERT INTO p SELECT g, CASE WHEN g % 2 = 0 THEN 'x' ELSE 'y' END FROM generate_series(0, 199) g;
    """)
    assert database.relation("t").estimated_rows is None
    assert database.relation("p").estimated_rows is None
    database.execute("ANALYZE t; ANALYZE p_low_x; ANALYZE p_low_y; ANALYZE p_high")
    assert database.relation("t").estimated_rows == 1000
    assert database.relation("p").estimated_rows == 200
    assert database.relation("t").size_bytes == database.value("SELECT pg_table_size('t')")
    leaves = "SELECT sum(pg_table_size(l)) FROM unnest('{p_low_x, p_low_y, p_high}'::regclass[]) l"
    assert database.relation("p").size_bytes == database.value(leaves)


def test_one_locked_table_does_not_stop_introspection(database: Database) -> None:
    """Its size cannot be measured; the planner's estimate stands in, and nobody waits for long."""
    database.execute("CREATE TABLE t (a int); INSERT INTO t SELECT generate_series(1, 10000); ANALYZE t")
    with database.second_session() as other:
        other.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        started = time.monotonic()
        relation = database.relation("t")
    assert time.monotonic() - started < 5
    assert relation.size_bytes > 0


def test_a_role_without_rights_sees_what_there_is(database: Database) -> None:
    """Introspection reads the catalogue, which needs no grant on the tables."""
    database.execute("CREATE SCHEMA shut; CREATE TABLE shut.t (id int PRIMARY KEY, v numeric(5, 1))")
    as_reader = database.source(reader=True).introspect()
    assert as_reader.relations == database.source().introspect().relations
    assert len(as_reader.relations) == 1


def test_hostile_names_come_back_as_they_are(database: Database) -> None:
    """Quotes, dots, line feeds, percent signs and pictures."""
    name, columns = 'a"b.c\nd%s 🦆', ['x"y', "p.q", "l\nf", "%(oid)s", "$1", "🦆", "ctid "]
    quoted = ", ".join('"' + c.replace('"', '""') + '" int' for c in columns)
    database.execute(f'CREATE TABLE "{name.replace(chr(34), chr(34) * 2)}" ({quoted})')
    [relation] = database.source().introspect().relations
    assert relation.name == name
    assert [c.name for c in relation.columns] == columns


def test_every_query_says_what_it_answers() -> None:
    """A name, then a comment, then SQL."""
    assert all(body.strip().startswith(b"-- ") and b"SELECT" in body for body in QUERIES.values())
    assert Column.__doc__
