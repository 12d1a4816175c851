"""`carbon demo`: a real database taken on as a customer's would be, synced, verified and queried."""

from __future__ import annotations

import secrets
import shutil
import sys

from carbon_pipeline.control_plane.records import Connection, Credential, SweepTrigger, TlsMode
from carbon_pipeline.demo.nycflights13 import QUERY, QUERY_TITLE, load_nycflights13
from carbon_pipeline.deployment import Deployment, embedded_server
from carbon_pipeline.destination.coordinate import parse_destination
from carbon_pipeline.embedded_postgres.server import EmbeddedServer, ensure_database, ensure_role
from carbon_pipeline.errors import SetupError, VaultError
from carbon_pipeline.session import Session, open_session
from carbon_pipeline.settings import Settings, project_root
from carbon_pipeline.terminal.demo_report import demo_grid, last_line
from carbon_pipeline.terminal.rows import show_table
from carbon_pipeline.terminal.runs import SyncOutcome, Tally, VerifyOutcome
from carbon_pipeline.terminal.screen import Screen
from carbon_pipeline.terminal.spelling import counted
from carbon_pipeline.terminal.views import QUIET

NAME = "nycflights13"
"""Of the credential, of the source's database, and of the schema in the lakehouse."""

_READER = "nycflights13_reader"
_WORKERS = 4


def run_demo(settings: Settings, screen: Screen) -> bool:
    """The whole demo. True when every table is equal to its source."""
    if not settings.embedded:
        raise SetupError(
            "CARBON_CONTROL_PLANE_URL is set, and the demo needs the embedded server, where its source lives",
            remedy="Unset it for this command; CARBON_HOME can name a folder to try things in.",
        )
    server = embedded_server(settings)
    _say(screen, "server", f"PostgreSQL at {server.host}:{server.port}, under {settings.home}")
    session = open_session(settings)
    credential = _connected(session, server)
    published = [each for each in session.deployment.directory.datasets(credential) if each.snapshot_id is not None]
    if published:
        _say(screen, "before", f"{counted(len(published), 'table')} published; each is replaced by a new snapshot")
    screen.say()
    screen.say("Syncing: each table becomes one Iceberg snapshot, announced in the ledger first")
    synced = session.sync(credential, (), workers=_WORKERS, say_results=False)
    screen.say("Verifying: rows and checksum, once by PostgreSQL, once from the lake's files")
    verified = session.verify(credential, ())
    _show(session, synced, verified)
    tally = Tally.of([verified])
    if synced.complete:
        _query(session, credential)
    # Nothing else sweeps until `make dev`, and `carbon status` would say so.
    session.deployment.ratify(SweepTrigger.TERMINAL)
    _say_next(screen)
    good = tally.all_equal and synced.complete
    screen.say(last_line(synced, verified), "bold green" if good else "bold red")
    return good


def _connected(session: Session, server: EmbeddedServer) -> Credential:
    """The demo's credential: made, or found and brought up to date."""
    deployment = session.deployment
    home = deployment.workspace(None)
    known = next((each for each in deployment.directory.credentials(home) if each.name == NAME), None)
    stored = None if known is None else _stored(deployment, known)
    connection = Connection(
        host=server.host,
        port=server.port,
        database=NAME,
        user=_READER,
        # The same again, so that two demos at once do not lock each other out.
        password=secrets.token_urlsafe(24) if stored is None else stored.password,
        tls=TlsMode.DISABLE,
    )
    _fill(session.screen, server, connection)
    if known is None:
        known, _ = deployment.connect(NAME, connection, destination=parse_destination(f"main.{NAME}"), workspace=home)
    elif connection != stored:
        deployment.reconnect(known, connection)
    _say(session.screen, "credential", f"{NAME}, as {_READER}, which may only read")
    _say(session.screen, "destination", f"{known.destination} ({known.destination.origin})")
    return known


def _stored(deployment: Deployment, credential: Credential) -> Connection | None:
    try:
        return deployment.connection(credential)
    except VaultError:
        return None


def _fill(screen: Screen, server: EmbeddedServer, connection: Connection) -> None:
    """The source: all flights that left New York City in 2013, and a role that may read them."""
    ensure_database(server, connection.database)
    ensure_role(server, connection.user, connection.password)
    loaded = load_nycflights13(
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password,
        database=connection.database,
        reader=connection.user,
    )
    done = "filled before" if loaded.was_there else "filled just now"
    size = f"{counted(len(loaded.rows), 'table')}, {counted(sum(loaded.rows.values()), 'row')}"
    _say(screen, "source", f"database {connection.database}, flights from New York: {size}, {done}")


def _show(session: Session, synced: SyncOutcome, verified: VerifyOutcome) -> None:
    session.screen.say()
    session.screen.table(demo_grid(synced, verified))


def _query(session: Session, credential: Credential) -> None:
    session.screen.say()
    session.screen.say(QUERY_TITLE, "bold")
    session.screen.say("Asked of the lakehouse, three tables joined:")
    with session.deployment.lakehouse(credential.workspace, credential=credential) as lakehouse:
        show_table(session.screen, lakehouse.query(QUERY), None)


def _say(screen: Screen, what: str, text: str) -> None:
    screen.say(f"{what:<13}{text}")


def _say_next(screen: Screen) -> None:
    carbon = "carbon" if shutil.which("carbon") else sys.argv[0]
    screen.say()
    screen.say("Try next:", QUIET)
    for arguments in (
        "status",
        f"tables {NAME} flights",
        f"prove {NAME}.flights",
        'query "SELECT count(*) FROM nycflights13.flights"',
    ):
        screen.say(f"  {carbon} {arguments}", QUIET)
    if project_root() is not None:
        screen.say("  make dev", QUIET)
    screen.say()
