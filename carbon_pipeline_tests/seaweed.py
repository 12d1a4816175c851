"""A real S3 and a real Iceberg REST catalog in one process, for tests."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, RESTError

_PORTS = (
    "master.port",
    "master.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "s3.port",
    "s3.port.grpc",
    "s3.port.iceberg",
    "admin.port",
    "admin.port.grpc",
)
_START_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Seaweed:
    """A running server, as PyIceberg's REST catalog is configured for it."""

    uri: str
    warehouse: str
    s3_endpoint: str
    access_key: str
    secret_key: str

    @property
    def properties(self) -> dict[str, str]:
        """PyIceberg's catalog properties."""
        return {
            "type": "rest",
            "uri": self.uri,
            "oauth2-server-uri": f"{self.uri}/v1/oauth/tokens",
            "warehouse": self.warehouse,
            "credential": f"{self.access_key}:{self.secret_key}",
            "s3.endpoint": self.s3_endpoint,
            "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key,
            "s3.region": "us-east-1",
            "s3.path-style-access": "true",
        }


def _free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, none twice."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _answers(seaweed: Seaweed) -> bool:
    """Whether the catalog serves our bucket. A config answer proves nothing: it comes before the bucket is made."""
    try:
        load_catalog("probe", **seaweed.properties).list_namespaces()
    except (RESTError, NoSuchNamespaceError, requests.RequestException):
        return False
    return True


@contextmanager
def running(binary: Path, folder: Path) -> Iterator[Seaweed]:
    """A server on loopback that keeps its data in *folder*, stopped at the end."""
    ports = dict(zip(_PORTS, _free_ports(len(_PORTS)), strict=True))
    bucket = f"carbon-{secrets.token_hex(4)}"
    seaweed = Seaweed(
        uri=f"http://127.0.0.1:{ports['s3.port.iceberg']}",
        warehouse=f"s3://{bucket}",
        s3_endpoint=f"http://127.0.0.1:{ports['s3.port']}",
        access_key="test-key",
        secret_key=secrets.token_hex(16),
    )
    flags = ["-master.telemetry=false", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-webdav=false", "-admin.ui=false"]
    flags += [f"-dir={folder}", "-s3.port.lance=0", f"-tableBucket={bucket}"]
    flags += [f"-{name}={port}" for name, port in ports.items()]
    keys = {"AWS_ACCESS_KEY_ID": seaweed.access_key, "AWS_SECRET_ACCESS_KEY": seaweed.secret_key}
    with (folder / "weed.log").open("w") as log:
        process = subprocess.Popen([binary, "mini", *flags], stdout=log, stderr=log, env=os.environ | keys)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not _answers(seaweed):
            assert process.poll() is None, (folder / "weed.log").read_text()[-2000:]
            assert time.monotonic() < deadline, "the server did not come up"
            time.sleep(0.1)
        yield seaweed
    finally:
        process.terminate()
        process.wait()
