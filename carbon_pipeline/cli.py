"""The `carbon` command: each command opens the deployment, asks it, and hands what it says to the terminal.

Exit codes: 0 done; 1 a check or the work failed; 2 wrong usage; 130 interrupted.
"""

from __future__ import annotations

import sys
import time
from importlib.metadata import version
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated

import typer

from carbon_pipeline.control_plane.records import Connection, OperationFilter, TlsMode
from carbon_pipeline.errors import UsageError
from carbon_pipeline.ratify.orphans import SAFE_AGE_HOURS
from carbon_pipeline.ratify.sweep import ABORTS_MAX, MIN_AGE_SECONDS, Terms
from carbon_pipeline.settings import environment_variable, read_settings
from carbon_pipeline.terminal import documents, options, views
from carbon_pipeline.terminal.connecting import connected_document, say_connected
from carbon_pipeline.terminal.ending import FAILED, promising, run
from carbon_pipeline.terminal.overview import say_overview, say_trouble
from carbon_pipeline.terminal.questions import PasswordSource, choose_destination, read_password
from carbon_pipeline.terminal.rows import check_form, show_result
from carbon_pipeline.terminal.runs import Tally, say_sync_summary, say_verdicts
from carbon_pipeline.terminal.screen import Screen

if TYPE_CHECKING:
    from carbon_pipeline.session import Session

SETTLED_NEXT = "What was published stays; the next sync of a table settles what was left open."

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
workspaces = typer.Typer(help="Make and list tenants.", no_args_is_help=True, rich_markup_mode=None)
connecting = typer.Typer(help="Take a source on.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(workspaces, name="workspace")
app.add_typer(connecting, name="connect")


def main() -> None:
    """The entry point of the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(app, sys.argv[1:]))


def _session(*, as_json: bool = False) -> Session:
    from carbon_pipeline.session import open_session  # noqa: PLC0415 - late: --help need not wait for PyIceberg

    return open_session(read_settings(), as_json=as_json)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"carbon_pipeline {version('carbon-pipeline')}")
        raise typer.Exit


@app.callback()
def root(
    show_version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Every table of many PostgreSQL databases in Apache Iceberg, with proof of what is held.

    \b
    Try it:
      carbon demo
    \b
    Your own database:
      carbon connect postgres shop --host db.example.com --database shop --user reader
      carbon sync shop
      carbon verify shop
      carbon query "SELECT count(*) FROM orders"
    """


@app.command()
def demo() -> None:
    """Sync a real database into Iceberg, verify it, query it.

    It fills a database of the embedded server with all flights that left New York City in 2013, connects to it as to
    a customer's, publishes its five tables, holds each against its source, and joins three of them.

    \b
    Example:
      carbon demo
    """
    from carbon_pipeline.demonstration import run_demo  # noqa: PLC0415 - late, as above

    with promising("What was published stays; the next demo settles what was left open and goes on."):
        if not run_demo(read_settings(), Screen.of_process()):
            raise typer.Exit(FAILED)


@app.command()
def up() -> None:
    """Start the embedded server.

    Every other command does that by itself.

    \b
    Example:
      carbon up
    """
    from carbon_pipeline.deployment import embedded_server  # noqa: PLC0415 - late, as above

    server = embedded_server(read_settings())
    Screen.of_process().say(f"Up at {server.host}:{server.port}, data in {server.data_directory}")


@app.command()
def down() -> None:
    """Stop the embedded server.

    Data stay where they are.

    \b
    Example:
      carbon down
    """
    from carbon_pipeline.embedded_postgres.server import stop  # noqa: PLC0415 - late, as above

    settings = read_settings()
    stopped = stop(settings.home)
    Screen.of_process().say("The embedded server is stopped" if stopped else f"None runs for {settings.home}")


@workspaces.command("create")
def create_workspace(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.")],
    owner: options.Owner = None,
    as_json: options.AsJson = False,
) -> None:
    """Make a workspace and its first owner.

    \b
    Examples:
      carbon workspace create acme
      carbon workspace create acme --owner ada
    """
    session = _session(as_json=as_json)
    owner = owner or session.deployment.settings.user
    made = session.deployment.directory.create_workspace(name, owner=owner)
    if as_json:
        session.screen.document({**documents.workspace_document(made), "owner": owner})
    else:
        session.screen.say(f"Workspace {made.name} is made; {owner} owns it")


@workspaces.command("list")
def list_workspaces(as_json: options.AsJson = False) -> None:
    """List the workspaces.

    \b
    Example:
      carbon workspace list
    """
    session = _session(as_json=as_json)
    found = session.deployment.directory.workspaces()
    if as_json:
        session.screen.document([documents.workspace_document(each) for each in found])
    else:
        session.screen.table(views.workspaces_grid(found))


@connecting.command("postgres")
def connect_postgres(  # noqa: PLR0913, PLR0917 - one parameter per option
    name: options.SourceName,
    database: options.Database,
    user: options.User,
    host: options.Host = "localhost",
    port: options.Port = 5432,
    password_env: options.PasswordVariable = None,
    password_file: options.PasswordFile = None,
    tls: Annotated[TlsMode, typer.Option("--tls", help="As libpq's sslmode.")] = TlsMode.PREFER,
    tls_root_certificate: options.Certificate = None,
    destination: options.DestinationText = None,
    workspace: options.InWorkspace = None,
    update: options.Update = False,
    as_json: options.AsJson = False,
) -> None:
    """Take a PostgreSQL database on as a source.

    The connection is tested before anything is saved, and sealed when it is. A password is never an argument: it is
    asked for, unless a variable or a file holds it.

    \b
    Examples:
      carbon connect postgres shop --host db.example.com --database shop --user reader
      carbon connect postgres shop --database shop --user reader --password-env SHOP_PASSWORD --destination main.sales
      carbon connect postgres shop --database shop --user reader --password-file new.txt --update
    """
    session = _session(as_json=as_json)
    screen, deployment = session.screen, session.deployment
    home = deployment.workspace(workspace)
    known = session.replaceable(home.id, name, update=update, destination=destination)
    chosen = known.destination if known else choose_destination(destination, screen)
    deployment.catalogs.config(chosen.catalog)
    source = PasswordSource(variable=password_env, file=password_file)
    connection = Connection(
        host=host,
        port=port,
        database=database,
        user=user,
        password=read_password(source, environment_variable, screen, whose=f"{user} at {host}:{port}/{database}"),
        tls=tls,
        tls_root_certificate=None if tls_root_certificate is None else str(tls_root_certificate.absolute()),
    )
    connected = session.reconnect(known, connection) if known else session.connect(name, connection, chosen, home)
    if as_json:
        document = documents.credential_document(views.Source(credential=connected.credential, connection=connection))
        screen.document(connected_document(connected, document))
    else:
        say_connected(screen, connected)


@app.command()
def credentials(workspace: options.OfWorkspace = None, as_json: options.AsJson = False) -> None:
    """List the sources and where each lands.

    It also says whether somebody chose the destination. It never shows a secret.

    \b
    Examples:
      carbon credentials
      carbon credentials --json
    """
    session = _session(as_json=as_json)
    sources = session.sources(workspace)
    if as_json:
        session.screen.document([documents.credential_document(source) for source in sources])
    elif sources:
        session.screen.table(views.credentials_grid(sources))
    else:
        session.screen.say("No source yet. `carbon connect postgres` takes one on; `carbon demo` brings one along.")


@app.command()
def tables(
    credential: options.CredentialName,
    table: options.MaybeTable = None,
    workspace: options.OfWorkspace = None,
    as_json: options.AsJson = False,
) -> None:
    """Show what a source has, or a table's columns.

    For one table: what each column is, what it becomes in the lake, and the receipt of that translation.

    \b
    Examples:
      carbon tables shop
      carbon tables shop public.orders
    """
    session = _session(as_json=as_json)
    source = session.credential(credential, workspace)
    if table is None:
        session.show_tables(source)
    else:
        session.show_table(source, table)


@app.command()
def sync(
    credential: options.MaybeCredential = None,
    tables: options.Tables = None,
    every: options.AllCredentials = False,
    workers: options.Workers = 4,
    workspace: options.OfWorkspace = None,
    as_json: options.AsJson = False,
) -> None:
    """Publish a source's tables as they are now.

    Each table becomes one snapshot, whole or not at all. One table that fails stops no other; the exit code is 1 when
    any did. Where there is one credential only, it need not be named.

    \b
    Examples:
      carbon sync shop
      carbon sync shop orders customers --workers 2
      carbon sync --all --json
    """
    session, begun = _session(as_json=as_json), time.monotonic()
    chosen = session.chosen(credential, workspace, every=every)
    with promising(SETTLED_NEXT):
        outcomes = [session.sync(each, tables or (), workers=workers) for each in chosen]
    if as_json:
        session.screen.document(documents.sync_document(outcomes))
    else:
        say_sync_summary(session.screen, outcomes, time.monotonic() - begun)
    if not all(outcome.complete for outcome in outcomes):
        raise typer.Exit(FAILED)


@app.command()
def verify(
    credential: options.MaybeCredential = None,
    tables: options.Tables = None,
    workspace: options.OfWorkspace = None,
    as_json: options.AsJson = False,
) -> None:
    """Hold what is published against its source.

    Row counts and checksums are worked out on either side: from the source as it is now, and from the files. The exit
    code is 1 when anything differs or could not be compared. A source that was written to since its last sync
    differs, as it should. Without a credential, all of them are verified.

    \b
    Examples:
      carbon verify
      carbon verify shop orders
    """
    session = _session(as_json=as_json)
    chosen = session.chosen(credential, workspace, every=credential is None)
    with promising("Verifying changes nothing."):
        outcomes = [session.verify(each, tables or ()) for each in chosen]
    tally = Tally.of(outcomes)
    if as_json:
        session.screen.document(documents.verify_document(outcomes, tally))
    else:
        say_verdicts(session.screen, outcomes, tally)
    if not tally.all_equal:
        raise typer.Exit(FAILED)


@app.command()
def status(workspace: options.OfWorkspace = None, as_json: options.AsJson = False) -> None:
    """Show where every dataset stands, and whether anybody settles what writers left.

    It only looks: an embedded server that is down stays down. The exit code is 1 when there was an alarm within the
    last 24 hours, or when nobody has looked for unsettled writes within a quarter of an hour.

    \b
    Examples:
      carbon status
      carbon status --json
    """
    from carbon_pipeline.session import overview  # noqa: PLC0415 - late, as above

    screen, found = Screen.of_process(), overview(read_settings(), workspace)
    if as_json:
        screen.document(documents.overview_document(found))
    else:
        say_overview(screen, found)
    say_trouble(screen, found)
    if not found.is_well:
        raise typer.Exit(FAILED)


@app.command()
def ratify(
    dry_run: options.DryRun = False,
    max_aborts: options.MaxAborts = ABORTS_MAX,
    min_age: options.MinAge = MIN_AGE_SECONDS,
    orphan_age: options.OrphanAge = SAFE_AGE_HOURS,
    as_json: options.AsJson = False,
) -> None:
    """Settle every write whose outcome is unknown, on evidence.

    It is what Dagster's sensor has done all the time, by hand: each unsettled operation is looked up in its catalog
    and settled on what that shows; then files that aborted writes left behind are removed. The exit code is 1 when a
    person has to look: too many aborts, a write that landed after it was ruled aborted, or a catalog that did not
    answer. What is young, or has a writer that lives, is left alone.

    \b
    Examples:
      carbon ratify --dry-run
      carbon ratify
      carbon ratify --max-aborts 500 --json
    """
    from carbon_pipeline.evidence import run_ratify  # noqa: PLC0415 - late, as above

    terms = Terms(min_age_seconds=min_age, aborts_max=max_aborts, dry_run=dry_run)
    with promising("What was settled stays settled; the next sweep goes on."):
        if not run_ratify(_session(as_json=as_json), terms, orphan_age):
            raise typer.Exit(FAILED)


@app.command()
def ledger(  # noqa: PLR0913, PLR0917 - Typer reads one parameter per option
    operation: options.MaybeOperation = None,
    only_open: options.OnlyOpen = False,
    only_failed: options.OnlyFailed = False,
    every: options.EveryOperation = False,
    dataset: options.OfDataset = None,
    workspace: options.OfWorkspace = None,
    limit: options.Newest = 50,
    as_json: options.AsJson = False,
) -> None:
    """List the writes on record, or tell the story of one.

    The story is who wrote, when, from where, what the catalog showed, what the ruling rests on, every transition and
    every file.

    \b
    Examples:
      carbon ledger --open
      carbon ledger --dataset sales.orders --limit 5
      carbon ledger 0197f3a2
    """
    from carbon_pipeline.evidence import show_operation, show_operations  # noqa: PLC0415 - late, as above

    chosen = [
        name for name, given in ((OperationFilter.OPEN, only_open), (OperationFilter.FAILED, only_failed)) if given
    ]
    if len(chosen) + every > 1:
        raise UsageError("--open, --failed and --all exclude each other", remedy="Give one of them, or none for all.")
    if operation is not None and (chosen or every or dataset is not None):
        raise UsageError("an operation and a choice among operations are both given", remedy="Give one of them.")
    session = _session(as_json=as_json)
    if operation is not None:
        show_operation(session, operation)
    else:
        show_operations(session, chosen[0] if chosen else OperationFilter.ALL, dataset, workspace, limit)


@app.command()
def prove(
    dataset: options.DatasetName, verify_too: options.AskSource = False, workspace: options.OfWorkspace = None
) -> None:
    """Print what a dataset holds and which write put it there, as one JSON document.

    Every file of the snapshot is read back: sizes, SHA-256, rows, and a checksum over the values; all of it is held
    against the ledger. The document says how a stranger checks it with DuckDB and psql. The exit code is 1 when
    anything does not hold, and with --verify also when the source differs now.

    \b
    Examples:
      carbon prove sales.orders > proof.json
      carbon prove sales.orders --verify
    """
    from carbon_pipeline.evidence import show_proof  # noqa: PLC0415 - late, as above

    with promising("Proving changes nothing."):
        if not show_proof(_session(as_json=True), dataset, workspace, ask_source=verify_too):
            raise typer.Exit(FAILED)


@app.command()
def query(
    sql: options.Sql,
    as_json: options.AsJson = False,
    as_csv: options.AsCsv = False,
    identity: options.Identity = False,
    limit: options.Limit = None,
    workspace: options.InWorkspace = None,
) -> None:
    """Ask the lakehouse in SQL.

    The dialect is DuckDB's. It reads what is published and nothing else.

    \b
    Examples:
      carbon query "SELECT count(*) FROM orders"
      carbon query "SELECT * FROM sales.orders" --csv > orders.csv
    """
    check_form(as_json=as_json, as_csv=as_csv)
    deployment = _session().deployment
    home = deployment.workspace(workspace)
    with promising("Asking changes nothing."), deployment.lakehouse(home, identity=identity) as lakehouse:
        show_result(Screen.of_process(), lakehouse.query(sql), limit, as_json=as_json, as_csv=as_csv)
