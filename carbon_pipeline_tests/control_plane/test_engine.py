"""Reaching the control plane, and failing to, without a word of the password."""

from __future__ import annotations

import traceback
from urllib.parse import quote

import pytest
from sqlalchemy import text

from carbon_pipeline.control_plane.sql.directory import Directory
from carbon_pipeline.control_plane.sql.engine import engine_from_url, read_url
from carbon_pipeline.errors import CarbonError, ControlPlaneError
from carbon_pipeline_tests.control_plane.samples import Address

CANARY = "s3cr3tCANARY"


def refusal(url: str) -> str:
    """The whole traceback of trying to use this address."""
    with pytest.raises(ControlPlaneError) as caught:
        Directory(engine_from_url(url)).workspaces()
    return "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_spelling_of_the_scheme_works(address: Address, scheme: str) -> None:
    """Addresses as other programs write them are taken, and our driver is used."""
    made = engine_from_url(
        f"{scheme}://{address.user}:{quote(address.password, safe='')}@{address.host}:{address.port}/{address.database}"
    )
    with made.connect() as connection:
        assert connection.execute(text("SELECT current_setting('application_name')")).scalar_one() == "carbon"
    assert made.url.drivername == "postgresql+psycopg"
    made.dispose()


def test_what_an_address_says() -> None:
    """Percent-encoded letters are decoded, options are kept, and a password among them is taken from there."""
    url = read_url("postgresql://us%40er:p%40%2F%3Ass:x@[::1]:5433/my%20db?sslmode=verify-full&connect_timeout=3")
    assert (url.username, url.password, url.host, url.port, url.database) == ("us@er", "p@/:ss:x", "::1", 5433, "my db")
    assert dict(url.query) == {"sslmode": "verify-full", "connect_timeout": "3"}
    hidden = read_url(f"postgres:///carbon?host=/run/postgresql&password={CANARY}")
    assert (hidden.host, hidden.password) == (None, CANARY)
    assert CANARY not in repr(hidden) + str(hidden)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://user:{CANARY}@x@host/db",
        f"postgresql://user:x@{CANARY}@host/db",
        f"postgresql://user:x/{CANARY}@host/db",
        f"postgresql://user:x?{CANARY}@host/db",
        f"postgresql://user:x#{CANARY}@host/db",
        f"postgresql://user:{CANARY}@host:port/db",
        f"mysql://user:{CANARY}@host/db",
        f"user:{CANARY}@host/db",
        f"host=db user=me password={CANARY}",
        f"postgresql://user:{CANARY} @host/db",
        "",
    ],
)
def test_an_address_that_is_none_is_not_quoted(url: str) -> None:
    """A password with raw special letters is refused with advice, and no piece of it is shown."""
    message = refusal(url)
    assert CANARY not in message.replace(f"engine_from_url({url!r})", "")
    assert "%40" in message


def test_bad_percent_signs_are_taken_as_they_are(address: Address) -> None:
    """A percent sign that encodes nothing is a percent sign: no part of the password ends up in an error."""
    message = refusal(f"postgresql://{address.user}:50%zz{CANARY}@{address.host}:{address.port}/{address.database}")
    assert CANARY not in message
    assert "password authentication failed" in message


@pytest.mark.parametrize("what", ["port", "database", "host"])
def test_a_server_that_does_not_answer(address: Address, what: str) -> None:
    """The reason is given, in one line with the remedy; the password is not."""
    host = "no-such-host.invalid" if what == "host" else address.host
    port = 1 if what == "port" else address.port
    database = "no_such_database" if what == "database" else address.database
    message = refusal(f"postgresql://{address.user}:{quote(address.password)}{CANARY[:0]}@{host}:{port}/{database}")
    assert address.password not in message
    assert "the control plane does not answer: " in message


def test_errors_do_not_chain_the_database_s_own(address: Address) -> None:
    """The driver's error quotes rows and parameters in its detail; ours stands alone."""
    with pytest.raises(CarbonError) as caught:
        Directory(engine_from_url("postgresql://u:p@127.0.0.1:1/db")).workspaces()
    shown = "".join(traceback.format_exception(caught.value))
    assert "psycopg" not in shown
    assert caught.value.__cause__ is None
