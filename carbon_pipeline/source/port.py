"""The port to one source."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager

from carbon_pipeline.schema.mapping import Mapping
from carbon_pipeline.source.reading import Reading
from carbon_pipeline.source.relation import Introspection
from carbon_pipeline.verify.digest import Digest


class Source(ABC):
    """One customer database, read-only. Every method raises a `SourceError` of the kind that fits."""

    @abstractmethod
    def introspect(self) -> Introspection:
        """Everything that can be synced, of every schema."""

    @abstractmethod
    def read(self, mapping: Mapping) -> AbstractContextManager[Reading]:
        """The relation's rows inside one repeatable-read, read-only snapshot, in Arrow batches of the mapping's schema.

        Inside that snapshot the relation is looked at again: `RelationChanged` when it is no longer what was mapped.
        """

    @abstractmethod
    def digest(self, mapping: Mapping) -> Digest:
        """Row count and checksum of the relation as it is now (see `verify.digest`)."""
