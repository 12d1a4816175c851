"""What Dagster's side asks of the rest: which credentials there are, what one of them holds now, and what to settle."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from carbon_pipeline.control_plane.records import OperationLine, OperationStory, SweepTrigger, TickDecision
from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.errors import RelationNotFound
from carbon_pipeline.gate.verdict import Actor
from carbon_pipeline.identity import OperationId
from carbon_pipeline.ledger.operation import Unsettled
from carbon_pipeline.orchestration.translator import CredentialFacts
from carbon_pipeline.ratify.orphans import OrphanReport
from carbon_pipeline.ratify.sweep import SweepReport, Terms
from carbon_pipeline.source.relation import Introspection, Relation
from carbon_pipeline.sync import Order, Ports


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """One credential as its source is now: the ports, what introspection found, and each relation's home by oid."""

    facts: CredentialFacts
    ports: Ports
    found: Introspection
    homes: Mapping[int, Dataset]
    actor: Actor

    @property
    def relations(self) -> dict[str, Relation]:
        """Every relation by its partition key."""
        return {self.homes[relation.oid].partition_key: relation for relation in self.found.relations}

    def relation(self, partition_key: str) -> Relation:
        """The relation that a partition stands for; `RelationNotFound` when the source has it no more."""
        relation = self.relations.get(partition_key)
        if relation is None:
            raise RelationNotFound(
                f"source {self.facts.label} has no table behind partition {partition_key}",
                remedy="Was it dropped? `carbon tables` lists what the source has; run the job `discover` to find "
                "new ones.",
            )
        return relation

    def order(self, relation: Relation, run_id: str) -> Order:
        """The order to sync one relation, for a Dagster run."""
        return Order(
            credential_id=self.facts.credential_id,
            relation=relation,
            found=self.found,
            actor=self.actor,
            run_id=run_id,
        )


class Ratifier(ABC):
    """The ledger of every workspace, as whoever settles its operations needs it. Methods raise a `CarbonError`."""

    @abstractmethod
    def unsettled(self, limit: int) -> Sequence[Unsettled]:
        """Unsettled operations of every dataset, the oldest first, in one query."""

    @abstractmethod
    def record_tick(self, trigger: SweepTrigger, decision: TickDecision) -> None:
        """Put on record that a trigger looked, and what it decided."""

    @abstractmethod
    def sweep(self, trigger: SweepTrigger, terms: Terms) -> SweepReport:
        """Settle what can be settled, and put the sweep on record."""

    @abstractmethod
    def remove_orphans(self) -> OrphanReport:
        """Delete what writes that never landed left behind, once it is old enough."""

    @abstractmethod
    def recent(self, limit: int) -> Sequence[OperationLine]:
        """Operations of every dataset, the newest first."""

    @abstractmethod
    def story(self, operation_id: OperationId) -> OperationStory:
        """Everything that is on record of one operation."""


class Pipeline(ABC):
    """The deployment as Dagster's side sees it. Methods raise a `CarbonError`."""

    @abstractmethod
    def credentials(self) -> tuple[CredentialFacts, ...]:
        """Every credential of every workspace."""

    @abstractmethod
    def survey(self, facts: CredentialFacts) -> Survey:
        """Look at one credential's source, and mint a dataset for each relation that is new."""

    @abstractmethod
    def ratifier(self) -> Ratifier:
        """What settles the operations of every workspace."""

    def story(self, operation_id: OperationId) -> OperationStory:
        """Everything that is on record of one operation."""
        return self.ratifier().story(operation_id)
