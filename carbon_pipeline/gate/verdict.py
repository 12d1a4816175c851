"""The gate's rule and its two answers.

A member of the workspace whose role may write is admitted; everybody else is refused. No role, no entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from carbon_pipeline.destination.coordinate import Dataset
from carbon_pipeline.errors import NotAdmitted


class Role(StrEnum):
    """A member's role in a workspace."""

    OWNER = "owner"
    EDITOR = "editor"
    VIEWER = "viewer"


MAY_WRITE: dict[Role, bool] = {Role.OWNER: True, Role.EDITOR: True, Role.VIEWER: False}

ENGINE = "carbon_pipeline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who writes: a person, through an engine."""

    user: str
    engine: str = ENGINE


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The gate's yes: what a write needs to open. Only `admit` makes one."""

    dataset: Dataset
    actor: Actor
    policy: str
    """The rule that admitted, as it is recorded."""


def admit(dataset: Dataset, actor: Actor, role: Role | None) -> Admitted:
    """Admit *actor* to write *dataset*, or raise `NotAdmitted` naming the rule.

    *role* is the actor's in the dataset's workspace; none when the actor is not a member.
    """
    if role is None:
        raise NotAdmitted(f"{actor.user} is not a member of workspace {dataset.workspace} (policy: members may write)")
    if not MAY_WRITE[role]:
        raise NotAdmitted(
            f"{actor.user} has role {role} in workspace {dataset.workspace}, which may not write (policy: role)"
        )
    return Admitted(dataset=dataset, actor=actor, policy=f"role:{role}")
