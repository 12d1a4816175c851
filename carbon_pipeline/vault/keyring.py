"""A keyring: named 256-bit keys. The first one seals, any of them opens.

Its written form is `id:base64,id2:base64`, newest first. To rotate, put a new key in front, reseal, then drop the old.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field

from carbon_pipeline.errors import VaultError

KEY_BYTES = 32
"""AES-256."""

# 32 bytes in base64 take 43 letters, so a key in the place of an id is never taken for one.
_ID = re.compile(r"[A-Za-z0-9._-]{1,32}")

_REMEDY = "CARBON_ENCRYPTION_KEYS is a list of id:key, comma between; a key is 32 random bytes in base64."


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key."""

    id: str
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyring:
    """At least one key, no two of the same id."""

    keys: tuple[Key, ...]

    @property
    def sealing(self) -> Key:
        """The key that seals."""
        return self.keys[0]

    def find(self, key_id: str) -> Key | None:
        """The key of that id, if it is here."""
        return next((key for key in self.keys if key.id == key_id), None)


def parse_keyring(text: str) -> Keyring:
    """The keyring that *text* spells. `VaultError` names the entry by its place, since its text may be the key."""
    keys = tuple(_parse_key(entry.strip(), place) for place, entry in enumerate(text.strip().split(","), start=1))
    if len({key.id for key in keys}) < len(keys):
        raise VaultError("two encryption keys have the same id", remedy=_REMEDY)
    return Keyring(keys=keys)


def format_key(key: Key) -> str:
    """One key in its written form."""
    return f"{key.id}:{base64.b64encode(key.secret).decode('ascii')}"


def _parse_key(entry: str, place: int) -> Key:
    key_id, colon, encoded = entry.partition(":")
    if not colon or not _ID.fullmatch(key_id):
        raise VaultError(f"encryption key {place} does not begin with an id and a colon", remedy=_REMEDY)
    try:
        secret = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise VaultError(f"encryption key {place} is not base64", remedy=_REMEDY) from None
    if len(secret) != KEY_BYTES:
        raise VaultError(f"encryption key {place} has {len(secret)} bytes instead of {KEY_BYTES}", remedy=_REMEDY)
    return Key(id=key_id, secret=secret)
