"""A writer that was killed around its request, and whose time is up."""

from __future__ import annotations

import signal

from carbon_pipeline.control_plane.records import Credential, OperationFilter, OperationLine
from carbon_pipeline.deployment import CONTROL_DATABASE, Deployment, embedded_server
from carbon_pipeline.ledger.states import OperationStatus
from carbon_pipeline_tests.conftest import admin_connection
from carbon_pipeline_tests.faults.worker import DieAt, start


def leave_behind(deployment: Deployment, credential: Credential, table: str, point: DieAt) -> OperationLine:
    """Sync *table* in a process that is killed at *point*: gives the operation that nobody settles, its lease over."""
    process = start(str(deployment.settings.home), credential.name, (table,), point)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    every = deployment.directory.operations(OperationFilter.OPEN, limit=1000)
    (line,) = [line for line in every if line.dataset.credential_id == credential.id]
    assert line.status is OperationStatus.COMMITTING
    with deployment.ledger.claim(line.dataset, deployment.actor):
        pass  # the server has noticed that the process is gone
    end_leases(deployment)
    return line


def end_leases(deployment: Deployment) -> None:
    """Two minutes later, as far as leases go."""
    with deployment.engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE carbon.dataset_transactions SET lease_until = heartbeat_at WHERE status IN ('open', 'committing')"
        )


def make_old(deployment: Deployment, line: OperationLine) -> None:
    """An hour later. Only the server's superuser can say so, past the triggers that keep what an operation recorded."""
    with admin_connection(embedded_server(deployment.settings), CONTROL_DATABASE) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            "UPDATE carbon.dataset_transactions SET opened_at = opened_at - interval '1 hour' WHERE id = %s", (line.id,)
        )
