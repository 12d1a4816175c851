"""Opening catalogs, and what may be said about one without giving away its secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from urllib.parse import urlsplit, urlunsplit

import requests
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import RESTError
from pyiceberg.utils.config import Config
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from carbon_pipeline.errors import LakeUnreachable, StorageFailed, UsageError
from carbon_pipeline.lake.iceberg.rest import CarbonRestCatalog


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogConfig:
    """A registered catalog: PyIceberg's properties for it, secrets among them."""

    name: str
    properties: Mapping[str, str] = field(repr=False)

    @property
    def kind(self) -> str:
        """PyIceberg's catalog type, `sql` or `rest` most often."""
        declared = self.properties.get("type")
        if declared:
            return declared
        return "rest" if self.properties.get("uri", "").startswith("http") else "sql"

    @property
    def uri(self) -> str:
        """The catalog's address without user, password or query."""
        parts = urlsplit(self.properties.get("uri", ""))
        host = parts.hostname or ""
        address = f"{host}:{parts.port}" if parts.port else host
        return urlunsplit((parts.scheme, address, parts.path, "", ""))

    @property
    def uri_host(self) -> str:
        """The host that the catalog is registered by; empty for one without."""
        return urlsplit(self.properties.get("uri", "")).hostname or ""

    @property
    def warehouse(self) -> str:
        """Where its tables live, as configured."""
        return self.properties.get("warehouse", "")


S3_TIMEOUTS = {"s3.connect-timeout": "10", "s3.request-timeout": "60"}
"""Seconds, for PyArrow's S3; without them a hung store would hang the writer."""


SQL_TIMEOUTS = {"connect_timeout": "10", "options": "-c lock_timeout=10s -c statement_timeout=60s"}
"""For a SQL catalog on PostgreSQL. A writer that stops between its UPDATE and its COMMIT holds the table's row; whoever
waits for that row without a limit waits for that writer."""


def _open(config: CatalogConfig) -> Catalog:
    properties = S3_TIMEOUTS | dict(config.properties)
    if config.kind == "rest":
        return CarbonRestCatalog(config.name, **properties)
    if config.kind == "sql":
        properties["uri"] = _with_timeouts(properties.get("uri", ""))
    return load_catalog(config.name, **properties)


def _with_timeouts(uri: str) -> str:
    """The address with libpq's parameters for time limits, where it is PostgreSQL's and does not say otherwise."""
    try:
        url = make_url(uri)
    except ArgumentError:
        return uri  # PyIceberg says what is wrong with it
    if url.get_backend_name() != "postgresql":
        return uri
    return url.update_query_dict({**SQL_TIMEOUTS, **url.query}).render_as_string(hide_password=False)


class Catalogs:
    """The registered catalogs, each opened once, on first use."""

    def __init__(self, configs: Mapping[str, CatalogConfig]) -> None:
        self._configs = dict(configs)
        self._opened: dict[str, Catalog] = {}
        self._lock = Lock()

    @property
    def names(self) -> tuple[str, ...]:
        """The registered names."""
        return tuple(sorted(self._configs))

    @property
    def warehouses(self) -> dict[str, str]:
        """Each catalog's warehouse."""
        return {name: config.warehouse for name, config in self._configs.items()}

    def config(self, name: str) -> CatalogConfig:
        """The configuration of a catalog; `UsageError` for an unknown one."""
        if name not in self._configs:
            known = ", ".join(sorted(self._configs)) or "none"
            raise UsageError(f"no catalog called {name} is configured", remedy=f"Configured: {known}.")
        return self._configs[name]

    def open(self, name: str) -> Catalog:
        """The catalog, opened if it was not yet; `LakeUnreachable` when it does not answer."""
        config = self.config(name)
        with self._lock:
            if name not in self._opened:
                with lake_errors(config.uri):
                    self._opened[name] = _open(config)
            return self._opened[name]


def configured_catalogs() -> dict[str, CatalogConfig]:
    """The catalogs of PyIceberg's own configuration (its file and `PYICEBERG_CATALOG__…` variables) by name."""
    settings = Config()
    names = settings.get_known_catalogs()
    return {
        name: CatalogConfig(
            name=name, properties={key: str(value) for key, value in (settings.get_catalog_config(name) or {}).items()}
        )
        for name in names
    }


@contextmanager
def lake_errors(doing: str) -> Iterator[None]:
    """Turn what PyIceberg, its drivers and the file system raise into our tree.

    What a REST catalog says of a refusal is repeated. Messages of drivers are not: they may hold parts of an address or
    of a password.
    """
    try:
        yield
    except RESTError as error:
        said = str(error).partition("\n")[0][:200]
        raise LakeUnreachable(f"the catalog refused ({doing}): {said}") from error
    except (SQLAlchemyError, requests.RequestException) as error:
        raise LakeUnreachable(f"the catalog did not answer as it should ({doing}): {type(error).__name__}") from error
    except OSError as error:
        raise storage_failed(doing, error) from error


def storage_failed(doing: str, error: OSError) -> StorageFailed:
    """The error for a file that could not be written or read."""
    return StorageFailed(f"the warehouse failed ({doing}): {error.strerror or type(error).__name__}")
