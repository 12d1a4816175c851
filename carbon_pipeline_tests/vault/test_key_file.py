"""The key file of an embedded installation: made once, whole, and for its owner's eyes only."""

from __future__ import annotations

import os
import stat
from multiprocessing import get_context
from pathlib import Path

import pytest

from carbon_pipeline.errors import VaultError
from carbon_pipeline.vault.aes_gcm import KEY_FILE, load_or_create_keys
from carbon_pipeline.vault.keyring import KEY_BYTES, parse_keyring


def test_made_on_first_use_and_kept(tmp_path: Path) -> None:
    """The first call makes a whole key of its own, mode 600; every later one reads the same."""
    home = tmp_path / "new" / "home"
    text = load_or_create_keys(home)
    assert len(parse_keyring(text).sealing.secret) == KEY_BYTES
    assert load_or_create_keys(home) == text
    assert stat.S_IMODE((home / KEY_FILE).stat().st_mode) == 0o600
    assert [path.name for path in home.iterdir()] == [KEY_FILE]
    assert load_or_create_keys(tmp_path / "other") != text


def test_eight_processes_at_once_agree(tmp_path: Path) -> None:
    """Whoever comes first makes the key, and all use that one."""
    with get_context("fork").Pool(8) as pool:
        texts = pool.map(load_or_create_keys, [tmp_path] * 32, chunksize=1)
    assert len(set(texts)) == 1
    assert [path.name for path in tmp_path.iterdir()] == [KEY_FILE]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666, 0o610])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    """A key that others may have read is no key; the remedy is in the message, the key is not."""
    text = load_or_create_keys(tmp_path)
    (tmp_path / KEY_FILE).chmod(mode)
    with pytest.raises(VaultError, match="chmod 600") as refusal:
        load_or_create_keys(tmp_path)
    assert text.partition(":")[2] not in str(refusal.value)


def test_a_link_is_refused(tmp_path: Path) -> None:
    """A symbolic link could point at a file of somebody else's making."""
    load_or_create_keys(tmp_path / "elsewhere")
    (tmp_path / KEY_FILE).symlink_to(tmp_path / "elsewhere" / KEY_FILE)
    with pytest.raises(VaultError):
        load_or_create_keys(tmp_path)


def test_a_home_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    """A home that is no folder is an error of the set-up, with its path."""
    (tmp_path / "file").write_text("")
    with pytest.raises(VaultError, match="file"):
        load_or_create_keys(tmp_path / "file")


def test_the_umask_does_not_widen_the_mode(tmp_path: Path) -> None:
    """Even with an umask of nothing the file is 600."""
    before = os.umask(0)
    try:
        load_or_create_keys(tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600
