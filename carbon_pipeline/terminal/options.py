"""Arguments and options that several commands share, each with its one wording."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document, and nothing else, on stdout.")]

InWorkspace = Annotated[
    str | None, typer.Option("--workspace", metavar="NAME", help="The workspace; the one that you own otherwise.")
]

OfWorkspace = Annotated[
    str | None, typer.Option("--workspace", metavar="NAME", help="Only this workspace; every one otherwise.")
]

CredentialName = Annotated[str, typer.Argument(metavar="CREDENTIAL", help="A source, by the name it was connected as.")]

MaybeCredential = Annotated[
    str | None, typer.Argument(metavar="CREDENTIAL", help="A source, by the name it was connected as.")
]

Tables = Annotated[
    list[str] | None,
    typer.Argument(metavar="TABLE", help="schema.table, or plain table in public. All of them otherwise."),
]

MaybeTable = Annotated[str | None, typer.Argument(metavar="TABLE", help="Show this table's columns and keys.")]

AllCredentials = Annotated[bool, typer.Option("--all", help="Every credential.")]

Workers = Annotated[int, typer.Option("--workers", metavar="N", min=1, max=64, help="Tables at a time.")]

SourceName = Annotated[str, typer.Argument(metavar="NAME", help="What to call the source from now on.")]
Host = Annotated[str, typer.Option("--host", metavar="HOST", help="Name or address of the server.")]
Port = Annotated[int, typer.Option("--port", metavar="PORT", min=1, max=65535, help="Its port.")]
Database = Annotated[str, typer.Option("--database", metavar="NAME", help="The database.")]
User = Annotated[str, typer.Option("--user", metavar="NAME", help="The role to log in as; it need only read.")]
PasswordVariable = Annotated[
    str | None,
    typer.Option("--password-env", metavar="VARIABLE", help="Environment variable that holds the password."),
]
PasswordFile = Annotated[
    Path | None, typer.Option("--password-file", metavar="PATH", help="File that holds the password and nothing else.")
]
Certificate = Annotated[
    Path | None,
    typer.Option("--tls-root-certificate", metavar="PATH", help="Certificates to trust; the system's otherwise."),
]
DestinationText = Annotated[
    str | None,
    typer.Option("--destination", metavar="CATALOG.SCHEMA", help="Where its tables land; main.default otherwise."),
]
Update = Annotated[
    bool, typer.Option("--update", help="Give an existing credential this connection, to the same database.")
]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do none of it.")]
MaxAborts = Annotated[
    int,
    typer.Option(
        "--max-aborts",
        metavar="N",
        min=0,
        help="Where more operations would be aborted, none is, and the exit code is 1.",
    ),
]
MinAge = Annotated[
    float, typer.Option("--min-age", metavar="SECONDS", min=0, help="Younger operations are left to their writers.")
]
OrphanAge = Annotated[
    float,
    typer.Option(
        "--orphan-age", metavar="HOURS", min=0, help="Remove the files of writes that were aborted so long ago."
    ),
]
MaybeOperation = Annotated[
    str | None,
    typer.Argument(
        metavar="OPERATION", help="Tell this one's story: its id, or eight or more digits that it begins with."
    ),
]
OnlyOpen = Annotated[bool, typer.Option("--open", help="Only what is unsettled.")]
OnlyFailed = Annotated[bool, typer.Option("--failed", help="Only what was aborted or cannot be verified.")]
EveryOperation = Annotated[bool, typer.Option("--all", help="All of them, which is also the default.")]
OfDataset = Annotated[
    str | None, typer.Option("--dataset", metavar="NAME", help="Only this dataset's: schema.name, name, or its table.")
]
Newest = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="So many of the newest.")]
DatasetName = Annotated[
    str,
    typer.Argument(metavar="DATASET", help="schema.name, name, or the source's schema.table if it can mean one only."),
]
AskSource = Annotated[bool, typer.Option("--verify", help="Ask the source for its rows and checksum now, and compare.")]

Owner = Annotated[str | None, typer.Option("--owner", metavar="USER", help="Its owner; you otherwise.")]

Sql = Annotated[str, typer.Argument(metavar="SQL", help="One SELECT; tables are called schema.name, or name alone.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV with a header line.")]
Identity = Annotated[bool, typer.Option("--identity", help="Show the identity columns (__row_index and its kin) too.")]
Limit = Annotated[
    int | None,
    typer.Option("--limit", metavar="N", min=0, help="Rows to print. A table shows 100 otherwise, JSON and CSV all."),
]
