"""The `Source` port over one PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from carbon_pipeline.control_plane.records import Connection
from carbon_pipeline.schema.mapping import Mapping
from carbon_pipeline.source.port import Source
from carbon_pipeline.source.postgres import introspect
from carbon_pipeline.source.postgres.digest import digest
from carbon_pipeline.source.postgres.extract import BatchStream, stream
from carbon_pipeline.source.postgres.failures import Subject, explained
from carbon_pipeline.source.postgres.probe import SourceProbe, probe
from carbon_pipeline.source.postgres.session import DEFAULT_OPTIONS, Options, connected
from carbon_pipeline.source.postgres.snapshot import pin
from carbon_pipeline.source.reading import Reading
from carbon_pipeline.source.relation import Introspection
from carbon_pipeline.verify.digest import Digest

__all__ = ["DEFAULT_OPTIONS", "Options", "PostgresSource", "SourceProbe", "probe"]


class PostgresSource(Source):
    """Each call opens a session of its own and leaves nothing behind. No state, so any number of threads may call."""

    def __init__(
        self, connection: Connection, *, application_name: str = "carbon_pipeline", options: Options = DEFAULT_OPTIONS
    ) -> None:
        self._connection = connection
        self._application_name = application_name
        self._options = options

    def introspect(self) -> Introspection:
        """Tables, partitioned tables and materialised views of every schema, whether the role may read them or not."""
        subject = Subject.of_database(self._connection.user, self._connection.database)
        with connected(self._connection, self._application_name, self._options) as session, explained(subject):
            return introspect.introspect(session, self._options, subject)

    @contextmanager
    def read(self, mapping: Mapping) -> Iterator[Reading]:
        """Opens the snapshot now; the rows flow as they are asked for."""
        with connected(self._connection, self._application_name, self._options) as session:
            pinned = pin(session, mapping, self._options)
            batches = BatchStream(stream(session, pinned, self._options))
            try:
                yield Reading(moment=pinned.moment, batches=batches)
            finally:
                batches.close()

    def digest(self, mapping: Mapping) -> Digest:
        """Row count and checksum, worked out at the source in a snapshot of its own."""
        with connected(self._connection, self._application_name, self._options) as session:
            return digest(session, pin(session, mapping, self._options))
