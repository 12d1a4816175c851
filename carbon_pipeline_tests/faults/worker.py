"""Syncs in processes of their own, to be killed. Forked from a server that has done the imports already."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from enum import StrEnum
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

from carbon_pipeline.deployment import open_deployment
from carbon_pipeline.lake.iceberg.lake import IcebergLake
from carbon_pipeline.settings import read_settings


class DieAt(StrEnum):
    """Named moments at which a worker kills itself."""

    NOWHERE = "nowhere"
    BEFORE_THE_REQUEST = "before the request"
    AFTER_THE_REQUEST = "after the request"


def fork_context() -> ForkServerContext:
    """A context whose processes start with this module's imports done."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _dying_at(point: DieAt, commit: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*arguments: Any) -> Any:
        if point is DieAt.BEFORE_THE_REQUEST:
            _die()
        outcome = commit(*arguments)
        if point is DieAt.AFTER_THE_REQUEST:
            _die()
        return outcome

    return wrapped


def sync(home: str, credential: str, tables: tuple[str, ...], point: DieAt = DieAt.NOWHERE) -> None:
    """Sync tables of a credential; exit 1 when one fails."""
    IcebergLake.commit = _dying_at(point, IcebergLake.commit)  # type: ignore[method-assign]  # this process only dies
    deployment = open_deployment(read_settings({"CARBON_HOME": home, "CARBON_USER": "tester"}))
    results = list(deployment.sync(deployment.directory.credential(credential), tables))
    if any(result.error for result in results):
        raise SystemExit("; ".join(str(result.error) for result in results if result.error))


def start(home: str, credential: str, tables: tuple[str, ...] = (), point: DieAt = DieAt.NOWHERE) -> ForkServerProcess:
    """A running sync in a process of its own."""
    process = fork_context().Process(target=sync, args=(home, credential, tables, point))
    process.start()
    return process
