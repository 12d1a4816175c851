"""Reading a keyring, and refusing what is none without quoting it."""

from __future__ import annotations

import base64

import pytest

from carbon_pipeline.errors import VaultError
from carbon_pipeline.vault.keyring import Key, format_key, parse_keyring

SECRET = bytes(range(32))
ENCODED = base64.b64encode(SECRET).decode()
OTHER = base64.b64encode(bytes(32)).decode()


def test_the_first_key_seals_and_every_key_is_found() -> None:
    """The order in the text is the order of the keyring."""
    keyring = parse_keyring(f"new:{ENCODED}, old:{OTHER}\n")
    assert keyring.sealing == Key(id="new", secret=SECRET)
    assert keyring.find("old") == Key(id="old", secret=bytes(32))
    assert keyring.find("older") is None


def test_written_and_read_again() -> None:
    """A key survives its written form."""
    key = Key(id="k1", secret=SECRET)
    assert parse_keyring(format_key(key)).keys == (key,)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ENCODED,
        f":{ENCODED}",
        f"{ENCODED}:k1",
        f"a b:{ENCODED}",
        "k1:",
        f"k1:{ENCODED[:-8]}",
        f"k1:{ENCODED}!!",
        f"k1:{base64.b64encode(SECRET[:16]).decode()}",
        f"k1:{ENCODED},",
        f"k1:{ENCODED},k1:{OTHER}",
        f"{'x' * 33}:{ENCODED}",
        f"kä:{ENCODED}",
    ],
)
def test_malformed_keyrings_are_refused_without_their_text(text: str) -> None:
    """Missing ids, short keys, bad base64, doubled ids: each refused, and no piece of the key is in the message."""
    with pytest.raises(VaultError) as refusal:
        parse_keyring(text)
    assert ENCODED[:8] not in str(refusal.value)
    assert refusal.value.__cause__ is None


def test_a_key_does_not_show_itself() -> None:
    """Neither a key nor a keyring prints its secret."""
    keyring = parse_keyring(f"k1:{ENCODED}")
    shown = repr(keyring) + str(keyring) + repr(keyring.sealing)
    assert "k1" in shown
    assert ENCODED not in shown
    assert repr(SECRET) not in shown
