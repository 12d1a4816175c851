"""The only reader of the environment. `read_settings` returns what everything else is told."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How this process was told to run."""

    home: Path
    """`CARBON_HOME`: where the embedded server, the keys and the local warehouse live."""
    user: str
    """`CARBON_USER`: who acts; the system's user unless it says otherwise."""
    control_plane_url: str | None = field(repr=False)
    """`CARBON_CONTROL_PLANE_URL`: a PostgreSQL of one's own. Nothing embedded starts when it is set."""
    encryption_keys: str | None = field(repr=False)
    """`CARBON_ENCRYPTION_KEYS`: `id:base64,…`, the first one seals."""
    dagster_url: str | None = field(default=None, repr=False)
    """`CARBON_DAGSTER_URL`: a PostgreSQL database for Dagster's own records.

    Without it they are in the database `dagster` of the embedded server, or in the schema `dagster` of the control
    plane's database.
    """

    @property
    def embedded(self) -> bool:
        """Whether this process uses the embedded server."""
        return self.control_plane_url is None


def project_root() -> Path | None:
    """The checkout that this package runs from; none when it was installed away from one."""
    parent = _PACKAGE.parent
    return parent if (parent / "pyproject.toml").is_file() else None


def _default_home() -> Path:
    return (project_root() or Path.home()) / ".carbon"


def read_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings of this process, from *environment* (default: the process's own)."""
    variables = os.environ if environment is None else environment
    return Settings(
        home=Path(variables.get("CARBON_HOME") or _default_home()).expanduser().absolute(),
        user=variables.get("CARBON_USER") or getpass.getuser(),
        control_plane_url=variables.get("CARBON_CONTROL_PLANE_URL") or None,
        encryption_keys=variables.get("CARBON_ENCRYPTION_KEYS") or None,
        dagster_url=variables.get("CARBON_DAGSTER_URL") or None,
    )


def environment_variable(name: str) -> str | None:
    """A variable that an option names, such as the one with a password."""
    return os.environ.get(name)


def debugging() -> bool:
    """`CARBON_DEBUG`: whether an error shows its traceback too."""
    return os.environ.get("CARBON_DEBUG", "") not in {"", "0"}
