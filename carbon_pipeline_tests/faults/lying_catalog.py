"""A proxy in front of a real Iceberg REST catalog that lies about commits, and only about these."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any

import requests

_COMMIT = re.compile(r"/namespaces/[^/]+/tables/[^/]+$")
_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "content-encoding", "host", "keep-alive"}


class Deed(StrEnum):
    """What the proxy does with a commit before it answers."""

    DROP = "never applied"
    APPLY = "applied"
    APPLY_TWICE = "applied twice"
    APPLY_LATER = "applied later"


@dataclass(frozen=True, slots=True)
class Lie:
    """A deed, and the answer that follows: a status, or None for a connection that is cut; garbage has no meaning."""

    deed: Deed
    status: int | None
    garbage: bool = False

    def __str__(self) -> str:
        answer = "cut" if self.status is None else f"{self.status}{' garbage' if self.garbage else ''}"
        return f"{self.deed}, then {answer}"


@dataclass
class LyingCatalog:
    """The proxy's script and what it saw. `lies` are told one commit each, in order; afterwards it is honest."""

    target: str
    uri: str = ""
    advertises_keys: bool = False
    lies: list[Lie] = field(default_factory=list)
    commits: int = 0
    keys: list[str | None] = field(default_factory=list)
    late_statuses: list[int] = field(default_factory=list)
    _late: list[Thread] = field(default_factory=list)
    _release: Event = field(default_factory=Event)
    _lock: Lock = field(default_factory=Lock)

    def next_lie(self, key: str | None) -> Lie | None:
        """The lie for this commit."""
        with self._lock:
            self.commits += 1
            self.keys.append(key)
            return self.lies.pop(0) if self.lies else None

    def later(self, send: Any) -> None:
        """Keep a request for `release`."""

        def wait_and_send() -> None:
            self._release.wait()
            self.late_statuses.append(send().status_code)

        thread = Thread(target=wait_and_send)
        thread.start()
        self._late.append(thread)

    def release(self) -> None:
        """Let the requests that were held back reach the catalog now."""
        self._release.set()
        for thread in self._late:
            thread.join()


def _handler(catalog: LyingCatalog) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def _forward(self, body: bytes) -> requests.Response:
            headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_BY_HOP}
            return requests.request(self.command, catalog.target + self.path, data=body, headers=headers, timeout=60)

        def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in (headers or {"Content-Type": "application/json"}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _honest(self, answer: requests.Response) -> None:
            headers = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP_BY_HOP}
            body = answer.content
            if catalog.advertises_keys and self.path.startswith("/v1/config"):
                body = json.dumps(answer.json() | {"idempotency-key-lifetime": "PT30M"}).encode()
            self._answer(answer.status_code, body, headers)

        def _tell(self, lie: Lie, body: bytes) -> None:
            if lie.deed is Deed.APPLY_LATER:
                catalog.later(lambda: self._forward(body))
            for _ in range({Deed.APPLY: 1, Deed.APPLY_TWICE: 2}.get(lie.deed, 0)):
                self._forward(body)
            if lie.status is None:
                self.close_connection = True
                self.connection.close()
                return
            error = {"error": {"message": "not the truth", "type": "Lie", "code": lie.status}}
            self._answer(lie.status, b"\x00{" if lie.garbage else json.dumps(error).encode())

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            is_commit = self.command == "POST" and _COMMIT.search(self.path) is not None
            lie = catalog.next_lie(self.headers.get("Idempotency-Key")) if is_commit else None
            if lie is None:
                self._honest(self._forward(body))
            else:
                self._tell(lie, body)

        do_GET = do_POST = do_HEAD = do_DELETE = _handle  # noqa: N815 - the names that http.server looks for

    return Handler


@contextmanager
def lying(target: str, *, advertises_keys: bool = False) -> Iterator[LyingCatalog]:
    """A proxy on loopback in front of *target*."""
    catalog = LyingCatalog(target=target, advertises_keys=advertises_keys)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(catalog))
    server.daemon_threads = True
    catalog.uri = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield catalog
    finally:
        catalog.release()
        server.shutdown()
        thread.join()
        server.server_close()
