"""A TCP proxy that breaks the connection after so many bytes from the server, or changes what it says."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class CuttingProxy:
    """Listens on a port of its own and hands everything on, until `cut_after` bytes came from the server.

    `rewrite` is a pair of equally long texts, the first of which becomes the second. While `stalled`, nothing passes,
    on new connections neither, and none is closed.
    """

    def __init__(self, host: str, port: int) -> None:
        self.cut_after: int | None = None
        self.stalled = False
        self.rewrite: tuple[bytes, bytes] | None = None
        self._upstream = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._upstream)
                threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, from_server: bool) -> None:
        passed = 0
        with suppress(OSError):
            while data := source.recv(65536):
                passed += len(data)
                while self.stalled:
                    time.sleep(0.02)
                if from_server and self.cut_after is not None and passed > self.cut_after:
                    break
                target.sendall(data.replace(*self.rewrite) if from_server and self.rewrite else data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stops listening."""
        self._listener.close()


@contextmanager
def cutting_proxy(host: str, port: int) -> Iterator[CuttingProxy]:
    """A proxy for the length of the block."""
    proxy = CuttingProxy(host, port)
    try:
        yield proxy
    finally:
        proxy.close()
