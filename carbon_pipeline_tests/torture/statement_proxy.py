"""A TCP proxy in front of PostgreSQL that counts statements and breaks the connection at one of them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from select import select
from threading import Lock, Thread

_READY = b"Z\x00\x00\x00\x05"
"""ReadyForQuery without its last byte: the answer to a statement is complete (manual, "Message Formats")."""
_ENDS_A_STATEMENT = b"QS"
"""Query, and Sync at the end of what makes up a prepared one."""
_SSL, _GSS = 80877103, 80877104
"""Requests for encryption, which come before a session's first message."""


class Cut(StrEnum):
    """Where the connection breaks."""

    BEFORE = "before the server sees the statement"
    AFTER = "after the server did it, before the client hears of it"


class StatementProxy:
    """Relays to one server. The statement whose number is `cut_at`, counted over all connections, is cut.

    With `stays_away` no new connection is let through after the cut, until `back` is called.
    """

    def __init__(self, host: str, port: int) -> None:
        self.statements = 0
        self.cut_at: int | None = None
        self.cut = Cut.BEFORE
        self.stays_away = False
        self._is_away = False
        self._server = (host, port)
        self._lock = Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        Thread(target=self._accept, daemon=True).start()

    def back(self) -> None:
        """Count from the beginning, cut nothing, let everybody through."""
        self.statements, self.cut_at, self._is_away = 0, None, False

    def cut_all(self) -> int:
        """Break every connection now."""
        with self._lock:
            cut = list(self._open)
        for client in cut:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        return len(cut)

    def close(self) -> None:
        """Accept no more."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._is_away:
                    client.close()
                else:
                    Thread(target=self._relay, args=(client,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(self._server) as server:
            with self._lock:
                self._open.add(client)
            try:
                self._pump(client, server)
            finally:
                with self._lock:
                    self._open.discard(client)

    def _pump(self, client: socket.socket, server: socket.socket) -> None:
        said = _Frontend()
        while True:
            for ready in select([client, server], [], [])[0]:
                data = ready.recv(65536)
                if not data:
                    return
                if ready is server:
                    client.sendall(data)
                elif self._is_cut(said.statements_in(data)):
                    self._break(server, data)
                    return
                else:
                    server.sendall(data)

    def _is_cut(self, statements: int) -> bool:
        with self._lock:
            before, self.statements = self.statements, self.statements + statements
            if self.cut_at is None or not before < self.cut_at <= self.statements:
                return False
            self.cut_at, self._is_away = None, self.stays_away
            return True

    def _break(self, server: socket.socket, data: bytes) -> None:
        if self.cut is Cut.AFTER:
            server.sendall(data)
            answer = b""
            while answer[-6:-1] != _READY and (more := server.recv(65536)):
                answer += more


class _Frontend:
    """Follows what a client says, message by message."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_typed = False

    def statements_in(self, data: bytes) -> int:
        """How many statements end in *data*."""
        self._rest += data
        ended = 0
        while (kind := self._next()) is not None:
            ended += kind in _ENDS_A_STATEMENT and kind != b""
        return ended

    def _next(self) -> bytes | None:
        """The next whole message's type; empty for one of the beginning, which has none."""
        head = 1 if self._is_typed else 0
        if len(self._rest) < head + 4:
            return None
        length = int.from_bytes(self._rest[head : head + 4])
        if len(self._rest) < head + length:
            return None
        message, self._rest = self._rest[: head + length], self._rest[head + length :]
        if self._is_typed:
            return message[:1]
        self._is_typed = int.from_bytes(message[4:8]) not in {_SSL, _GSS}
        return b""


@contextmanager
def statement_proxy(host: str, port: int) -> Iterator[StatementProxy]:
    """A proxy for the length of a block."""
    proxy = StatementProxy(host, port)
    try:
        yield proxy
    finally:
        proxy.close()
