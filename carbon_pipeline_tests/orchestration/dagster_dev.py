"""`dagster dev` from the repository's root, as a person starts it, and its GraphQL, which is what the UI sees."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

import carbon_pipeline

ROOT = Path(carbon_pipeline.__file__).resolve().parent.parent
_PATIENCE_SECONDS = 120


def environment(home: Path, **more: str) -> dict[str, str]:
    """A shell's environment in which nothing of the project is set but the home."""
    ours = ("CARBON_", "DAGSTER_", "PYICEBERG_", "PG")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "CARBON_HOME": str(home), "CARBON_USER": "tester", **more}


def dagster(home: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """A `dagster` command at the repository's root."""
    return subprocess.run(
        [str(Path(sys.executable).parent / "dagster"), *arguments],
        cwd=ROOT,
        env=environment(home, **more),
        capture_output=True,
        text=True,
        timeout=_PATIENCE_SECONDS,
        check=False,
    )


@dataclass(frozen=True)
class Dev:
    """A running `dagster dev`."""

    url: str

    def ask(self, query: str, **variables: object) -> Any:
        """A GraphQL query's data; an error in it fails the test."""
        answer = requests.post(f"{self.url}/graphql", json={"query": query, "variables": variables}, timeout=30)
        document = answer.json()
        assert "errors" not in document, document["errors"]
        return document["data"]

    def launch(self, job: str, *, assets: list[list[str]] | None = None, tags: Mapping[str, str] | None = None) -> str:
        """Launch a run as the UI does, and give its id."""
        selector: dict[str, object] = {
            "repositoryLocationName": "carbon_pipeline",
            "repositoryName": "__repository__",
            "pipelineName": job,
        }
        if assets is not None:
            selector["assetSelection"] = [{"path": path} for path in assets]
        tagged = [{"key": key, "value": value} for key, value in (tags or {}).items()]
        answer = self.ask(
            """mutation($params: ExecutionParams!) { launchPipelineExecution(executionParams: $params) {
                 __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }""",
            params={"selector": selector, "mode": "default", "executionMetadata": {"tags": tagged}},
        )["launchPipelineExecution"]
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return str(answer["run"]["runId"])

    def status(self, run_id: str) -> str:
        """A run's status."""
        answer = self.ask("query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }", id=run_id)
        return str(answer["runOrError"]["status"])

    def ended(self, run_id: str) -> str:
        """A run's last status, waited for."""
        ends = {"SUCCESS", "FAILURE", "CANCELED"}
        return str(wait_for(lambda: (status := self.status(run_id)) in ends and status))


def wait_for(question: Any, seconds: float = _PATIENCE_SECONDS) -> Any:
    """The first answer that is true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            answer = question()
        except requests.ConnectionError:
            answer = None
        if answer:
            return answer
        time.sleep(0.3)
    raise AssertionError(f"nothing came within {seconds} seconds")


@contextmanager
def dagster_dev(home: Path, log: Path) -> Iterator[Dev]:
    """A `dagster dev` whose code location is loaded; SIGTERM ends it with its children."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(Path(sys.executable).parent / "dagster"), "dev", "--host", "127.0.0.1", "--port", str(port)]
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=environment(home), stdout=output, stderr=output)
    try:
        dev = Dev(url=f"http://127.0.0.1:{port}")
        wait_for(lambda: process.poll() is not None or _loaded(dev))
        assert process.poll() is None, log.read_text()[-4000:]
        yield dev
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _loaded(dev: Dev) -> bool:
    answer = dev.ask(
        """{ workspaceOrError { ... on Workspace { locationEntries { name loadStatus locationOrLoadError {
             __typename ... on PythonError { message } } } } } }"""
    )
    entries = answer["workspaceOrError"]["locationEntries"]
    assert all((e["locationOrLoadError"] or {}).get("__typename") != "PythonError" for e in entries), entries
    return bool(entries) and all(entry["loadStatus"] == "LOADED" for entry in entries)
