"""Sealing binds a value to its place; whatever does not fit stays shut, and says nothing of what is inside."""

from __future__ import annotations

import traceback
from uuid import UUID, uuid4

import pytest

from carbon_pipeline.control_plane.records import Connection, TlsMode
from carbon_pipeline.errors import VaultError
from carbon_pipeline.vault.aes_gcm import decode_connection, encode_connection, open_sealed, reseal, seal
from carbon_pipeline.vault.keyring import Key, Keyring

CANARY = b"canary-s3cr3t"
OLD, NEW = Key(id="old", secret=b"o" * 32), Key(id="new", secret=b"n" * 32)
WORKSPACE, CREDENTIAL = uuid4(), uuid4()
RING = Keyring(keys=(OLD,))


def sealed(keyring: Keyring = RING, field: str = "connection") -> bytes:
    """The canary, sealed for this module's workspace and credential."""
    return seal(keyring, CANARY, workspace=WORKSPACE, credential=CREDENTIAL, field=field)


def opened(
    value: bytes,
    keyring: Keyring = RING,
    *,
    workspace: UUID = WORKSPACE,
    credential: UUID = CREDENTIAL,
    field: str = "connection",
) -> bytes:
    """What is in *value*, opened as this module's own unless told otherwise."""
    return open_sealed(keyring, value, workspace=workspace, credential=credential, field=field)


def refusal_to_open(value: bytes, keyring: Keyring = RING, **place: UUID) -> str:
    """The whole traceback of the refusal."""
    with pytest.raises(VaultError) as caught:
        opened(value, keyring, **place)  # type: ignore[arg-type]  # a field is never among them
    return "".join(traceback.format_exception(caught.value))


def test_what_was_sealed_opens() -> None:
    """Sealing hides the value, and opening gives it back; no two seals are alike."""
    assert opened(sealed()) == CANARY
    assert CANARY not in sealed()
    assert sealed() != sealed()
    assert opened(seal(RING, b"", workspace=WORKSPACE, credential=CREDENTIAL, field="connection")) == b""


def test_every_changed_bit_is_noticed() -> None:
    """One flipped bit anywhere, and the value stays shut."""
    value = sealed()
    for place in range(len(value)):
        altered = bytearray(value)
        altered[place] ^= 1
        assert CANARY.decode() not in refusal_to_open(bytes(altered))


def test_every_truncation_is_noticed() -> None:
    """A value cut short anywhere stays shut."""
    value = sealed()
    for length in range(len(value)):
        refusal_to_open(value[:length])


def test_a_sealed_value_belongs_to_its_place() -> None:
    """Copied to another workspace, credential or field it does not open."""
    refusal_to_open(sealed(), workspace=uuid4())
    refusal_to_open(sealed(), credential=uuid4())
    refusal_to_open(sealed(field="other"))


def test_parts_of_the_place_do_not_run_into_each_other() -> None:
    """No choice of field and key id spells the associated data of another choice."""
    tricky = seal(RING, CANARY, workspace=WORKSPACE, credential=CREDENTIAL, field='connection", "old')
    refusal_to_open(tricky)


def test_a_missing_key_is_named() -> None:
    """The refusal says which key is wanted, and nothing of the value."""
    message = refusal_to_open(sealed(), Keyring(keys=(NEW,)))
    assert "sealed with key old, which is not here" in message
    assert CANARY.decode() not in message


def test_another_key_of_the_same_id_does_not_open() -> None:
    """An id is a label, not the key."""
    refusal_to_open(sealed(), Keyring(keys=(Key(id="old", secret=b"x" * 32),)))


def test_rotation() -> None:
    """With both keys the value opens and is sealed anew; after that the old key is not needed, and opens nothing."""
    both = Keyring(keys=(NEW, OLD))
    anew = reseal(both, sealed(), workspace=WORKSPACE, credential=CREDENTIAL, field="connection")
    assert opened(anew, Keyring(keys=(NEW,))) == CANARY
    refusal_to_open(anew, Keyring(keys=(OLD,)))


CONNECTION = Connection(
    host="db.example",
    port=5433,
    database="shop",
    user="reader",
    password="canary-pä\udcff'\"\\",
    tls=TlsMode.VERIFY_FULL,
    tls_root_certificate="/etc/ca.pem",
)


def test_a_connection_survives_its_bytes() -> None:
    """Every field comes back, whatever letters are in it."""
    assert decode_connection(encode_connection(CONNECTION)) == CONNECTION


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"null", b"\xff", b'{"tls": "canary"}', b'{"tls": "prefer", "canary": 1}']
)
def test_bytes_that_are_no_connection_are_not_quoted(data: bytes) -> None:
    """What was opened by mistake does not end up in a traceback."""
    with pytest.raises(VaultError) as caught:
        decode_connection(data)
    assert "canary" not in "".join(traceback.format_exception(caught.value))


def test_a_connection_does_not_show_its_password() -> None:
    """Printing a connection prints no secret."""
    assert "canary" not in repr(CONNECTION) + str(CONNECTION)
