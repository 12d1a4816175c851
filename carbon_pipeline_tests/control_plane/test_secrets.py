"""A canary in a source's password: it is nowhere but inside the seal."""

from __future__ import annotations

import base64
import logging
import pickle
import traceback
from collections.abc import Callable
from dataclasses import asdict

import pytest
from sqlalchemy import Engine

from carbon_pipeline.control_plane.records import Connection, Credential, Workspace
from carbon_pipeline.control_plane.sql.directory import Directory
from carbon_pipeline.control_plane.sql.ledger import SqlLedger
from carbon_pipeline.errors import UsageError, VaultError
from carbon_pipeline.source.relation import Relation
from carbon_pipeline.vault.aes_gcm import decode_connection, encode_connection, open_sealed, reseal, seal
from carbon_pipeline.vault.keyring import Key, Keyring
from carbon_pipeline_tests.control_plane.samples import dump, mint, publish

CANARY = "canary-Tr0ub4dor"
SPELLINGS = [
    CANARY.encode(),
    CANARY.encode().hex().encode(),
    base64.b64encode(CANARY.encode())[:16],
    bytes(reversed(CANARY.encode())),
]
RING = Keyring(keys=(Key(id="k1", secret=b"1" * 32),))
SOURCE = Connection(host="db.example", port=5432, database="shop", user="reader", password=CANARY)

AddCredential = Callable[..., Credential]


def sealed_for(workspace: Workspace) -> Callable[..., bytes]:
    """Seals this module's connection for a credential of the workspace."""
    return lambda credential_id: seal(
        RING, encode_connection(SOURCE), workspace=workspace.id, credential=credential_id, field="connection"
    )


def test_the_canary_is_in_no_row(
    engine: Engine, ledger: SqlLedger, workspace: Workspace, add_credential: AddCredential, users: Relation
) -> None:
    """After connecting and publishing, no row of any table holds the password in any plain spelling."""
    credential = add_credential("canary", seal=sealed_for(workspace))
    publish(ledger, mint(ledger, credential, users), users)
    everything = dump(engine).encode()
    assert b"users" in everything
    assert [spelling for spelling in SPELLINGS if spelling in everything] == []


def test_the_canary_is_in_no_record(workspace: Workspace, add_credential: AddCredential) -> None:
    """A credential as the program hands it around holds no secret, sealed or not."""
    credential = add_credential("canary", seal=sealed_for(workspace))
    shown = (repr(credential) + str(asdict(credential))).encode() + pickle.dumps(credential)
    assert [spelling for spelling in SPELLINGS if spelling in shown] == []


def test_the_canary_is_in_no_error(
    engine: Engine, workspace: Workspace, add_credential: AddCredential, caplog: pytest.LogCaptureFixture
) -> None:
    """Errors around a credential that cannot be saved, and the statements that the engine logs, show no secret."""
    add_credential("canary", seal=sealed_for(workspace))
    with caplog.at_level(logging.DEBUG), pytest.raises(UsageError) as taken:
        add_credential("canary", seal=sealed_for(workspace))
    shown = "".join(traceback.format_exception(taken.value)) + caplog.text
    assert [spelling for spelling in SPELLINGS if spelling in shown.encode()] == []


def test_a_sealed_connection_does_not_open_for_another_credential(
    directory: Directory, workspace: Workspace, add_credential: AddCredential
) -> None:
    """Whoever swaps two rows' sealed connections by hand gets neither open."""
    one, two = (add_credential(name, seal=sealed_for(workspace)) for name in ("one", "two"))
    swapped = directory.sealed_connection(two.id)
    with pytest.raises(VaultError):
        open_sealed(RING, swapped, workspace=workspace.id, credential=one.id, field="connection")


def test_rotation_through_the_directory(
    directory: Directory, workspace: Workspace, add_credential: AddCredential
) -> None:
    """Resealed under a new key and stored, the connection opens without the old one."""
    credential = add_credential("rotated", seal=sealed_for(workspace))
    place = {"workspace": workspace.id, "credential": credential.id}
    new = Key(id="k2", secret=b"2" * 32)
    anew = reseal(
        Keyring(keys=(new, *RING.keys)), directory.sealed_connection(credential.id), **place, field="connection"
    )
    directory.update_connection(credential.id, anew, system_identifier=credential.system_identifier)
    opened = open_sealed(Keyring(keys=(new,)), directory.sealed_connection(credential.id), **place, field="connection")
    assert decode_connection(opened) == SOURCE
