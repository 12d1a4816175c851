"""Sealing with AES-256-GCM, the key file of an embedded installation, and what is sealed: a connection.

A sealed value describes itself:

    1 byte    version, 1
    1 byte    length of the key's id
    n bytes   the key's id, ASCII
    12 bytes  nonce, random (NIST SP 800-38D, 8.2.2)
    the rest  ciphertext and its 16-byte tag

The associated data names the workspace, the credential, the field and the key, so a sealed value that was copied to
another row, another tenant or another column does not open.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from carbon_pipeline.control_plane.records import Connection, TlsMode
from carbon_pipeline.errors import VaultError
from carbon_pipeline.vault.keyring import KEY_BYTES, Key, Keyring, format_key

KEY_FILE = "encryption.keys"

_VERSION = 1
_NONCE_BYTES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sealed:
    key_id: str
    nonce: bytes
    ciphertext: bytes


def seal(keyring: Keyring, plaintext: bytes, *, workspace: UUID, credential: UUID, field: str) -> bytes:
    """*plaintext* sealed with the keyring's first key, for this place only."""
    key = keyring.sealing
    nonce = secrets.token_bytes(_NONCE_BYTES)
    ciphertext = AESGCM(key.secret).encrypt(nonce, plaintext, _associated_data(workspace, credential, field, key.id))
    return bytes([_VERSION, len(key.id)]) + key.id.encode("ascii") + nonce + ciphertext


def open_sealed(keyring: Keyring, sealed: bytes, *, workspace: UUID, credential: UUID, field: str) -> bytes:
    """What was sealed. `VaultError`, without a word of the value, when it does not open."""
    parts = _parse(sealed, credential, field)
    key = keyring.find(parts.key_id)
    if key is None:
        raise VaultError(
            f"the {field} of credential {credential} was sealed with key {parts.key_id}, which is not here"
        )
    try:
        return AESGCM(key.secret).decrypt(
            parts.nonce, parts.ciphertext, _associated_data(workspace, credential, field, key.id)
        )
    except InvalidTag:
        raise VaultError(
            f"the {field} of credential {credential} does not open: it was altered, or sealed for another place, "
            f"or with another key called {key.id}",
            remedy="Connect the source again to store its connection anew.",
        ) from None


def reseal(keyring: Keyring, sealed: bytes, *, workspace: UUID, credential: UUID, field: str) -> bytes:
    """The same value sealed with the keyring's first key."""
    plaintext = open_sealed(keyring, sealed, workspace=workspace, credential=credential, field=field)
    return seal(keyring, plaintext, workspace=workspace, credential=credential, field=field)


def _parse(sealed: bytes, credential: UUID, field: str) -> _Sealed:
    unreadable = VaultError(
        f"the {field} of credential {credential} is not a sealed value that this version reads",
        remedy="Install the version of carbon_pipeline that sealed it, or connect the source again.",
    )
    if len(sealed) < 2 or sealed[0] != _VERSION:
        raise unreadable
    nonce_at = 2 + sealed[1]
    ciphertext_at = nonce_at + _NONCE_BYTES
    key_id = sealed[2:nonce_at]
    if len(sealed) <= ciphertext_at or not key_id.isascii() or not key_id.decode("ascii").isprintable():
        raise unreadable
    return _Sealed(
        key_id=key_id.decode("ascii"), nonce=sealed[nonce_at:ciphertext_at], ciphertext=sealed[ciphertext_at:]
    )


def _associated_data(workspace: UUID, credential: UUID, field: str, key_id: str) -> bytes:
    # JSON keeps the parts apart: no choice of field and key id can spell another one's.
    return json.dumps([_VERSION, str(workspace), str(credential), field, key_id]).encode("ascii")


def load_or_create_keys(home: Path) -> str:
    """The keyring's text from `encryption.keys` under *home*, made on first use and readable by its owner only."""
    path = home / KEY_FILE
    if not path.exists():
        _create_keys(path)
    return _read_keys(path)


def _create_keys(path: Path) -> None:
    """Create the key file with its content in one step; whoever comes second keeps the first one's."""
    key = Key(id=f"k{secrets.token_hex(4)}", secret=secrets.token_bytes(KEY_BYTES))
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(format_key(key) + "\n")
                file.flush()
                os.fsync(file.fileno())
            # A link fails when the name is taken, and shows the whole file or none of it.
            path.hardlink_to(draft)
            _sync_folder(path.parent)
        finally:
            draft.unlink()
    except FileExistsError:
        return
    except OSError as error:
        raise VaultError(
            f"the key file {path} cannot be made: {error.strerror}", remedy="Make CARBON_HOME writable."
        ) from None


def _sync_folder(folder: Path) -> None:
    """Put the new name itself on disk: a key that is lost takes every sealed secret with it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_keys(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError as error:
        raise VaultError(
            f"the key file {path} cannot be read: {error.strerror}", remedy="Make it a file of yours, mode 600."
        ) from None
    with os.fdopen(descriptor, encoding="ascii", errors="replace") as file:
        if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
            raise VaultError(f"others can read the key file {path}", remedy=f"Run chmod 600 {path}.")
        return file.read().strip()


def encode_connection(connection: Connection) -> bytes:
    """A connection as the bytes to seal."""
    return json.dumps(
        {
            "host": connection.host,
            "port": connection.port,
            "database": connection.database,
            "user": connection.user,
            "password": connection.password,
            "tls": connection.tls.value,
            "tls_root_certificate": connection.tls_root_certificate,
        }
    ).encode("ascii")


def decode_connection(data: bytes) -> Connection:
    """The connection that was sealed; `VaultError` when the bytes are none."""
    try:
        fields = json.loads(data)
        return Connection(**{**fields, "tls": TlsMode(fields["tls"])})
    except (ValueError, TypeError, KeyError):
        # Not chained: the error underneath may quote what was opened.
        raise VaultError(
            "what was opened is not a connection that this version reads",
            remedy="Install the version of carbon_pipeline that stored it, or connect the source again.",
        ) from None
