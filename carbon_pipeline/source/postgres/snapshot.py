"""One relation, pinned: its moment, its lock, its snapshot, and the proof that it is still what was mapped."""

from __future__ import annotations

from dataclasses import dataclass, replace

from psycopg import sql

from carbon_pipeline.errors import RelationChanged, RelationNotFound
from carbon_pipeline.schema.mapping import Mapping
from carbon_pipeline.source.postgres.failures import ROW_SECURITY, Subject, explained, failure, readable
from carbon_pipeline.source.postgres.introspect import RELKINDS, ask, difference, look_again
from carbon_pipeline.source.postgres.session import Options, Session, begin
from carbon_pipeline.source.reading import Moment, parse_lsn
from carbon_pipeline.source.relation import Relation, RelationKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """A relation under lock, inside the snapshot."""

    mapping: Mapping
    relation: Relation
    """The mapped one, under the name that it has now."""
    subject: Subject
    moment: Moment

    @property
    def rows(self) -> sql.Composed:
        """What to put behind FROM."""
        return _from(self.relation)


def pin(session: Session, mapping: Mapping, options: Options) -> Pinned:
    """Takes the moment, then the lock, then the snapshot; in this order only do the three agree.

    The moment comes first, so that the snapshot shows at least it: a transaction that commits between the two is in
    the rows although the moment does not promise it, and the reverse cannot be. The lock comes before the snapshot
    because TRUNCATE and an ALTER that rewrites a table are not seen by older snapshots as they were: such a table would
    look empty. Under the lock neither can happen, and what the catalogue says is what COPY will read.
    """
    subject = Subject.of_relation(session.info.user, mapping.relation)
    with explained(subject):
        moment = _moment(session)
        relation = _where_it_is_now(session, mapping.relation, subject)
        subject = Subject.of_relation(session.info.user, relation)
    with explained(subject):
        begin(session, options, statement_seconds=options.read_seconds)
        _lock(session, relation)
        _check_shape(look_again(session, relation.oid), relation, subject)
        _check_row_security(session, relation, subject)
    return Pinned(mapping=mapping, relation=relation, subject=subject, moment=moment)


def _moment(session: Session) -> Moment:
    [row] = ask(session, "moment")
    return Moment(system_identifier=row["system_identifier"], lsn=parse_lsn(row["lsn"]), time=row["time"])


def _where_it_is_now(session: Session, mapped: Relation, subject: Subject) -> Relation:
    """The mapped relation under its present name: its oid names it, and a rename is followed."""
    for row in ask(session, "place", oid=mapped.oid):
        if row["relkind"] in RELKINDS:
            return replace(mapped, schema=row["schema"], name=row["name"])
    raise RelationNotFound(f"{subject.words}: it was dropped since it was found")


def _lock(session: Session, relation: Relation) -> None:
    """ACCESS SHARE, which stands in nobody's way but that of DDL.

    LOCK TABLE takes no snapshot but does not take materialised views either; for these an empty SELECT has to do, and
    does: nothing that can happen to them between its snapshot and its lock shows as anything but a named error.
    """
    if relation.kind is RelationKind.MATERIALISED_VIEW:
        session.execute(sql.SQL("SELECT FROM {} LIMIT 0").format(_from(relation)))
    else:
        session.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(_from(relation)))


def _from(relation: Relation) -> sql.Composed:
    """ONLY for a plain table: tables that inherit from it are relations of their own, and read as such."""
    only = sql.SQL("ONLY " if relation.kind is RelationKind.TABLE else "")
    return sql.SQL("{}{}").format(only, sql.Identifier(relation.schema, relation.name))


def _check_shape(now: Relation | None, mapped: Relation, subject: Subject) -> None:
    if now is None:
        raise RelationNotFound(f"{subject.words}: it was dropped since it was found")
    if now.qualified_name != mapped.qualified_name:
        raise RelationChanged(f"{subject.words}: it was renamed while it was being opened")
    if (changed := difference(mapped, now)) is not None:
        raise RelationChanged(f"{subject.words}: {readable(changed)} since it was found")


def _check_row_security(session: Session, relation: Relation, subject: Subject) -> None:
    """`row_security = off` would make COPY fail alike, but here nothing hangs on a setting."""
    [row] = ask(session, "row_security", oid=relation.oid)
    if row["active"]:
        raise failure(ROW_SECURITY, subject)
