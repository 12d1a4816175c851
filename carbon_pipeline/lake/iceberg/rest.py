"""The REST catalog with what PyIceberg leaves out: a time limit on every request, and the idempotency key."""

from __future__ import annotations

import requests
from pyiceberg.catalog.rest import RestCatalog
from requests.adapters import HTTPAdapter

from carbon_pipeline.lake.iceberg.idempotency import HEADER, current_key

CONNECT_TIMEOUT_SECONDS = 10
READ_TIMEOUT_SECONDS = 60

_LIFETIME = "idempotency-key-lifetime"
"""What `/v1/config` says when the catalog takes keys."""


class _Adapter(HTTPAdapter):
    """PyIceberg sets no time limit, so a hung catalog would hang the writer for ever."""

    def __init__(self, catalog: CarbonRestCatalog) -> None:
        super().__init__()
        self._catalog = catalog

    def send(  # type: ignore[override]  # requests declares the parameters one by one; all are handed on as they came
        self, request: requests.PreparedRequest, **options: object
    ) -> requests.Response:
        options["timeout"] = options.get("timeout") or (CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS)
        key = current_key()
        if key is not None and request.method == "POST" and self._catalog.takes_keys:
            request.headers[HEADER] = str(key)
        return super().send(request, **options)  # type: ignore[arg-type]  # as above


class CarbonRestCatalog(RestCatalog):
    """A REST catalog whose every session has the adapter, from the first request for its configuration on."""

    takes_keys: bool = False
    """Whether the catalog has advertised a lifetime of idempotency keys."""

    def _create_session(self) -> requests.Session:
        session = super()._create_session()
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Adapter(self))
        session.hooks["response"].append(self._note_lifetime)
        return session

    def _note_lifetime(self, response: requests.Response, *_: object, **__: object) -> None:
        if response.ok and response.url.partition("?")[0].endswith("/v1/config"):
            self.takes_keys = _LIFETIME in response.json()
