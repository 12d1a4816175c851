"""What PostgreSQL says went wrong, turned into our error tree.

One table, by SQLSTATE (PostgreSQL manual, appendix "PostgreSQL Error Codes"): a code of five letters, or a class of
two. PostgreSQL's own words are never passed on: they may hold a row's values or parts of a connection string, and they
come in the server's language. A failed login has no SQLSTATE that libpq would tell, so its words are only looked
through for phrases that give the code away.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from carbon_pipeline.errors import (
    RelationChanged,
    RelationNotFound,
    SourceBroke,
    SourceError,
    SourceForbids,
    SourceRefusedLogin,
    SourceUnreachable,
    ValueNotRepresentable,
)
from carbon_pipeline.source.relation import Relation


def readable(name: str) -> str:
    """A name on one line: a line feed or an invisible character in it is spelt out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def quoted(name: str) -> str:
    """A name as one would type it in SQL, on one line."""
    return '"' + readable(name).replace('"', '""') + '"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What was being done something with when it failed."""

    words: str
    grant: str = "GRANT SELECT on what is to be read"
    """The statement that would let the source's user read it."""

    @classmethod
    def of_database(cls, user: str, database: str) -> Subject:
        """The whole database."""
        return cls(
            words=f"database {readable(database)}",
            grant=f"GRANT CONNECT ON DATABASE {quoted(database)} TO {quoted(user)}",
        )

    @classmethod
    def of_relation(cls, user: str, relation: Relation) -> Subject:
        """One table."""
        schema, table, reader = quoted(relation.schema), quoted(relation.name), quoted(user)
        return cls(
            words=readable(relation.qualified_name),
            grant=f"GRANT USAGE ON SCHEMA {schema} TO {reader}; GRANT SELECT ON {schema}.{table} TO {reader}",
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """What one code, or class of codes, means to us. `remedy` may hold `{grant}`."""

    error: type[SourceError]
    words: str
    remedy: str | None = None


LOST = "08006"
NO_CONNECTION = "08001"
ROW_SECURITY = "42501 by row security"
"""Not a code of PostgreSQL's, which answers 42501 here as well; but the remedy is another."""

RULES: dict[str, Rule] = {
    "08": Rule(SourceBroke, "the connection to the source was lost"),
    NO_CONNECTION: Rule(SourceUnreachable, "no connection to the source"),
    "0A": Rule(SourceError, "the source cannot do this", "If it is a replica, connect to its primary instead."),
    "22": Rule(ValueNotRepresentable, "the source holds a value that it cannot send"),
    "22021": Rule(ValueNotRepresentable, "the source holds bytes that are not text in its encoding"),
    "22P05": Rule(ValueNotRepresentable, "the source holds a character that has no counterpart in UTF-8"),
    "25P03": Rule(SourceBroke, "the source closed the connection because nothing was read for too long"),
    "25P04": Rule(SourceBroke, "the source's transaction_timeout is shorter than the reading",
                  "Raise transaction_timeout for the source's user."),
    "28": Rule(SourceRefusedLogin, "the source refused the login",
               "Check user and database, and that pg_hba.conf lets this user in from this machine."),
    "28P01": Rule(SourceRefusedLogin, "the source refused user and password"),
    "3D000": Rule(SourceRefusedLogin, "the source has no such database"),
    "3F000": Rule(RelationNotFound, "its schema is not there (any more)"),
    "40": Rule(SourceBroke, "the source ended the transaction because of a conflict",
               "Run the sync again; if a replica does it again and again, raise its max_standby_streaming_delay."),
    "42": Rule(SourceError, "the source did not understand the query",
               "This is a fault of carbon_pipeline's; please report it with the SQLSTATE."),
    "42501": Rule(SourceForbids, "the source's user may not read this", "An owner can run: {grant};"),
    ROW_SECURITY: Rule(SourceForbids, "row-level security would hide rows from the source's user",
                       "A part of a table is never taken for the whole: give the source's user BYPASSRLS, connect as "
                       "the table's owner, or exclude the table."),
    "42703": Rule(RelationChanged, "a column is not there any more"),
    "42704": Rule(RelationChanged, "a type is not there any more"),
    "42P01": Rule(RelationNotFound, "it is not there (any more)"),
    "53": Rule(SourceBroke, "the source ran out of memory, disk or another resource"),
    "53300": Rule(SourceUnreachable, "the source has no free connection", "Raise max_connections there, or try later."),
    "54": Rule(SourceError, "a row is larger than PostgreSQL can send (1 GB)", "Exclude the table."),
    "55000": Rule(SourceError, "it cannot be read in its present state",
                  "If it is a materialised view without data, REFRESH it at the source."),
    "55P03": Rule(SourceBroke, "another session holds a lock on it, and the wait was too long",
                  "Run the sync again when the ALTER, VACUUM FULL or long transaction at the source has ended."),
    "57": Rule(SourceBroke, "the source's server shut down or ended the connection"),
    "57014": Rule(SourceBroke, "the query was cancelled at the source, by its time limit or by a person"),
    "57P03": Rule(SourceUnreachable, "the source's server is starting, stopping or recovering"),
    "72000": Rule(SourceBroke, "the source's snapshot became too old to read"),
    "XX001": Rule(SourceError, "the source's data are damaged", "Restore the table at the source from a backup."),
    "XX002": Rule(SourceError, "an index at the source is damaged", "REINDEX the table at the source."),
}  # fmt: skip
_OTHERWISE = Rule(SourceBroke, "the query failed at the source")

_PHRASES: tuple[tuple[str, str, str | None], ...] = (
    ("password authentication failed|no password supplied", "28P01", None),
    ("no pg_hba.conf entry|pg_hba.conf rejects", "28000", "the source's pg_hba.conf does not let us in"),
    ('role ".*" (does not exist|is not permitted)', "28000", None),
    ('database ".*" (does not exist|is not currently)', "3D000", None),
    ("permission denied for database", "28000", "the source's user may not connect to this database"),
    ("too many c|connection slots", "53300", None),
    ("database system is|server closed the connection", "57P03", None),
    ("SSL|certificate|TLS", NO_CONNECTION, "TLS could not be agreed on with the source as configured"),
    ("resolve host|translate host name", NO_CONNECTION, "the host name cannot be resolved"),
    ("timeout expired|timed out", NO_CONNECTION, "the source did not answer in time"),
    ("[Cc]onnection refused", NO_CONNECTION, "nothing listens at the source's host and port"),
    ("[Nn]o route|[Nn]etwork is unreachable", NO_CONNECTION, "there is no way through the network to the source"),
)
"""A phrase of a failed login, the code that it gives away, and words that say more than the code's."""


def failure(code: str, subject: Subject, words: str | None = None) -> SourceError:
    """The error for one code."""
    rule = RULES.get(code) or RULES.get(code[:2]) or _OTHERWISE
    remedy = rule.remedy.format(grant=subject.grant) if rule.remedy else None
    return rule.error(f"{subject.words}: {words or rule.words} (SQLSTATE {code[:5]})", remedy=remedy)


def explain(error: psycopg.Error, subject: Subject) -> SourceError:
    """The error for what psycopg raised on an open connection."""
    code = error.sqlstate or LOST
    # The name of the function in PostgreSQL's source: the one thing told apart here that has no code and no language.
    if code == "42501" and error.diag.source_function == "check_enable_rls":
        code = ROW_SECURITY
    return failure(code, subject)


def explain_login(error: psycopg.Error, subject: Subject) -> SourceError:
    """The error for a connection that did not come about."""
    said = str(error)
    for phrase, code, words in _PHRASES:
        if re.search(phrase, said):
            return failure(code, subject, words)
    # In a language we do not know. Once the password was asked for and given, it is the server that refused.
    asked = error.pgconn is not None and error.pgconn.used_password
    return failure(error.sqlstate or ("28000" if asked else NO_CONNECTION), subject)


@contextmanager
def explained(subject: Subject) -> Iterator[None]:
    """Raises a `SourceError` in place of psycopg's, whose text and context may hold values: so `from None`."""
    try:
        yield
    except psycopg.Error as error:
        raise explain(error, subject) from None
    except UnicodeDecodeError:
        raise failure("22021", subject) from None
