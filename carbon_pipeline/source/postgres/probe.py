"""A look around before a source is taken on: does the login work, and is the role no more than a reader?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from carbon_pipeline.control_plane.records import Connection
from carbon_pipeline.source.postgres.failures import Subject, explained
from carbon_pipeline.source.postgres.introspect import Row, ask
from carbon_pipeline.source.postgres.session import DEFAULT_OPTIONS, Options, connected


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceProbe:
    """What `carbon connect` tells about a source. A warning is a sentence; none means a role as it should be."""

    system_identifier: int
    database: str
    server_version: str
    user: str
    warnings: tuple[str, ...]


def probe(
    connection: Connection, *, application_name: str = "carbon_pipeline", options: Options = DEFAULT_OPTIONS
) -> SourceProbe:
    """Connects, looks, and leaves. Raises a `SourceError` of the kind that fits."""
    subject = Subject.of_database(connection.user, connection.database)
    with connected(connection, application_name, options) as session, explained(subject):
        [database], [standing], [rights] = (ask(session, name) for name in ("database", "standing", "rights"))
        return SourceProbe(**database, user=standing["user"], warnings=tuple(_warnings(standing, rights)))


def _warnings(standing: Row, rights: Row) -> Iterator[str]:
    user = standing["user"]
    if standing["is_superuser"]:
        yield f"{user} is a superuser; a role that may only read is enough"
    else:
        yield from _may_do_more(user, standing, rights)
    if rights["readable"] < rights["relations"]:
        yield f"{user} may not read {rights['relations'] - rights['readable']} of {rights['relations']} tables"
    if rights["hidden_in_part"]:
        yield f"row-level security hides rows of {rights['hidden_in_part']} tables from {user}; they will not be read"
    if standing["is_replica"]:
        yield "this is a replica: a long reading may be ended by what it has to replay"
    if not standing["is_encrypted"]:
        yield "the connection is not encrypted"


def _may_do_more(user: str, standing: Row, rights: Row) -> Iterator[str]:
    if rights["writable"]:
        yield f"{user} may write to {rights['writable']} of {rights['relations']} tables"
    if standing["creates_schemas"]:
        yield f"{user} may create schemas in this database"
    if standing["creates_roles"]:
        yield f"{user} may create roles"
    if standing["replicates"]:
        yield f"{user} may replicate, which is more than reading tables"
