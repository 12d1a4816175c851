"""A database of a test's own, a role that may do little, and how to reach both as a source."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from carbon_pipeline.control_plane.records import Connection, TlsMode
from carbon_pipeline.embedded_postgres.server import EmbeddedServer
from carbon_pipeline.schema.mapping import Mapping, map_relation
from carbon_pipeline.source.postgres.session import Options
from carbon_pipeline.source.postgres.source import PostgresSource
from carbon_pipeline.source.relation import Relation

CANARY = "c@n%41ry pass/word:'\\\"=?&"
"""A password with everything that a URL, a keyword string or SQL could trip over."""

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Database:
    """A fresh database, its superuser's session, and itself as a source."""

    admin: psycopg.Connection[tuple[object, ...]]
    connection: Connection
    reader: Connection
    """As a role that was granted nothing."""

    def execute(self, statements: str) -> None:
        """Runs SQL as the superuser."""
        self.admin.execute(statements.encode())

    def value(self, query: str) -> object:
        """The one value of a query."""
        row = self.admin.execute(query.encode()).fetchone()
        return row[0] if row else None

    def source(self, *, reader: bool = False, options: Options | None = None) -> PostgresSource:
        """The database as a source, of the superuser or of the reader."""
        connection = self.reader if reader else self.connection
        return PostgresSource(connection, application_name="tested", options=options or Options())

    def relation(self, name: str) -> Relation:
        """One relation, as introspection finds it."""
        found = self.source().introspect().find(name)
        assert found is not None, name
        return found

    def mapping(self, name: str) -> Mapping:
        """One relation's mapping."""
        return map_relation(self.relation(name))

    def read(self, name: str, *, reader: bool = False, options: Options | None = None) -> pa.Table:
        """All rows of one relation."""
        mapping = self.mapping(name)
        with self.source(reader=reader, options=options).read(mapping) as reading:
            return pa.Table.from_batches(list(reading.batches), schema=mapping.arrow_schema)

    def rows(self, name: str) -> list[dict[str, object]]:
        """All rows of one relation, as Python sees them."""
        rows: list[dict[str, object]] = self.read(name).to_pylist()
        return rows

    @contextmanager
    def second_session(self) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
        """Another session of the superuser, in a transaction."""
        with psycopg.connect(
            host=self.connection.host, port=self.connection.port, user=self.connection.user,
            password=self.connection.password, dbname=self.connection.database,
        ) as session:  # fmt: skip
            yield session


@pytest.fixture
def open_database(server: EmbeddedServer) -> Iterator[Callable[[str], Database]]:
    """Opens a database that exists, with a role made for it; takes both roles away afterwards."""
    opened: list[Database] = []

    def make(name: str) -> Database:
        admin = psycopg.connect(
            host=server.host, port=server.port, user=server.user, password=server.password, dbname=name,
            autocommit=True, client_encoding="UTF8",
        )  # fmt: skip
        connection = Connection(
            host=server.host, port=server.port, database=name, user=server.user, password=server.password,
            tls=TlsMode.DISABLE,
        )  # fmt: skip
        role = f"reader_{os.getpid()}_{next(_numbers)}"
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(role), sql.Literal(CANARY)))
        reader = replace(connection, user=role, password=CANARY)
        opened.append(Database(admin=admin, connection=connection, reader=reader))
        return opened[-1]

    yield make
    for database in opened:
        role = sql.Identifier(database.reader.user)
        database.admin.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(role))
        database.admin.close()


@pytest.fixture
def database(make_database: Callable[[str], str], open_database: Callable[[str], Database]) -> Database:
    """A fresh UTF-8 database."""
    return open_database(make_database("source"))
