"""Dagster's entry: the definitions of this code location. Importing it does nothing; loading it asks for credentials.

`workspace.yaml` names this module. The credentials are fetched when the code location is loaded; a new one shows after
a reload of the location, a new table without.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from threading import Lock

import dagster as dg

from carbon_pipeline.control_plane.records import OperationLine, OperationStory, SweepTrigger, TickDecision
from carbon_pipeline.deployment import CODE_VERSION, Deployment, open_deployment
from carbon_pipeline.errors import UsageError
from carbon_pipeline.identity import OperationId
from carbon_pipeline.ledger.operation import Unsettled
from carbon_pipeline.orchestration.build import build_definitions
from carbon_pipeline.orchestration.port import Pipeline, Ratifier, Survey
from carbon_pipeline.orchestration.state import CredentialsLoader
from carbon_pipeline.orchestration.translator import CredentialFacts, facts_of
from carbon_pipeline.ratify.orphans import OrphanReport
from carbon_pipeline.ratify.sweep import SweepReport, Terms
from carbon_pipeline.settings import Settings, read_settings


class DeployedRatifier(Ratifier):
    """A deployment's own ledger, directory and sweeps."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment

    def unsettled(self, limit: int) -> Sequence[Unsettled]:
        """As the ledger lists them."""
        return self._deployment.ledger.unsettled(limit)

    def record_tick(self, trigger: SweepTrigger, decision: TickDecision) -> None:
        """In the control plane."""
        self._deployment.directory.record_tick(trigger, decision)

    def sweep(self, trigger: SweepTrigger, terms: Terms) -> SweepReport:
        """The deployment's own sweep."""
        return self._deployment.ratify(trigger, terms)

    def remove_orphans(self) -> OrphanReport:
        """After the deployment's own safe age."""
        return self._deployment.remove_orphans()

    def recent(self, limit: int) -> Sequence[OperationLine]:
        """As the directory lists them."""
        return self._deployment.directory.operations(limit=limit)

    def story(self, operation_id: OperationId) -> OperationStory:
        """As the directory tells it."""
        return self._deployment.directory.operation(str(operation_id))


class DeployedPipeline(Pipeline):
    """The deployment that the settings name, opened when it is first asked for something."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._opening = Lock()

    @cached_property
    def _opened(self) -> Deployment:
        return open_deployment(self._settings)

    @property
    def _deployment(self) -> Deployment:
        with self._opening:  # sensors tick in threads
            return self._opened

    def credentials(self) -> tuple[CredentialFacts, ...]:
        """Every credential of the control plane."""
        return tuple(facts_of(credential) for credential in self._deployment.directory.credentials())

    def survey(self, facts: CredentialFacts) -> Survey:
        """Look at one credential's source now."""
        deployment = self._deployment
        credential = next((c for c in deployment.directory.credentials() if str(c.id) == facts.id), None)
        if credential is None:
            raise UsageError(
                f"credential {facts.label} is gone", remedy="Reload the code location to see what there is."
            )
        ports = deployment.ports(credential)
        found, homes = deployment.discover(credential, ports)
        return Survey(facts=facts, ports=ports, found=found, homes=homes, actor=deployment.actor)

    def ratifier(self) -> Ratifier:
        """The deployment's own."""
        return DeployedRatifier(self._deployment)


def load_definitions(settings: Settings) -> dg.Definitions:
    """The definitions for these settings."""
    pipeline = DeployedPipeline(settings)
    return CredentialsLoader(
        fetch=pipeline.credentials,
        build=lambda credentials: build_definitions(credentials, pipeline=pipeline, code_version=CODE_VERSION),
        last_seen=settings.home / "dagster" / "credentials.json",
    ).build_defs()


@dg.definitions
def definitions() -> dg.Definitions:
    """What `dagster dev` and its kin load."""
    return load_definitions(read_settings())
