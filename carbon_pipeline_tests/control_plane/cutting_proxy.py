"""A relay in front of PostgreSQL that breaks the connection around a COMMIT, on demand."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from select import select
from threading import Thread

# The statement as the client sends it and its tag as the server answers, but not the COMMITTED of an isolation level.
_COMMIT = b"COMMIT\0"


class Cut(StrEnum):
    """Where the connection breaks."""

    BEFORE_COMMIT = "before the server sees the COMMIT"
    AFTER_COMMIT = "after the server took the COMMIT, before the client hears of it"


class CuttingProxy:
    """Relays to one server. Once `cut` is set, the next COMMIT breaks its connection there, and `cut` is spent."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cut: Cut | None = None
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(self._server) as server:
            while True:
                for ready in select([client, server], [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    if ready is client and self.cut is not None and _COMMIT in data:
                        self._cut(server, data)
                        return
                    (server if ready is client else client).sendall(data)

    def _cut(self, server: socket.socket, commit: bytes) -> None:
        cut, self.cut = self.cut, None
        if cut is Cut.AFTER_COMMIT:
            server.sendall(commit)
            while _COMMIT not in server.recv(65536):  # the command's tag, in the server's answer
                pass


@contextmanager
def cutting_proxy(host: str, port: int) -> Iterator[CuttingProxy]:
    """A proxy for the length of a test."""
    proxy = CuttingProxy(host, port)
    try:
        yield proxy
    finally:
        proxy.close()
