"""Which credentials the definitions are made of, fetched once per load of the code location.

`StateBackedDefinitionsLoader` is Dagster's own, but not exported from `dagster`; it is imported here and nowhere else.
It hands the state on in the arguments of every run and step that it launches, so workers never ask the control plane,
and so it must hold no secret: it is made of `CredentialFacts` alone.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import dagster as dg
from dagster._core.definitions.definitions_load_context import StateBackedDefinitionsLoader
from dagster._utils.warnings import disable_dagster_warnings

from carbon_pipeline.errors import CarbonError
from carbon_pipeline.orchestration.translator import CredentialFacts, facts_from_state

State = dict[str, list[dict[str, str]]]
"""Plain containers of text: what Dagster can serialise without a class of ours."""

_CREDENTIALS = "credentials"


class CredentialsLoader(StateBackedDefinitionsLoader[State]):
    """Definitions from the credentials there are; from the last ones seen while the control plane is away."""

    def __init__(
        self,
        *,
        fetch: Callable[[], Sequence[CredentialFacts]],
        build: Callable[[Sequence[CredentialFacts]], dg.Definitions],
        last_seen: Path,
    ) -> None:
        self._fetch = fetch
        self._build = build
        self._last_seen = last_seen

    @property
    def defs_key(self) -> str:
        """The state's name in Dagster's own records."""
        return "carbon_pipeline/credentials"

    def build_defs(self) -> dg.Definitions:
        """The definitions, without the warnings about previews and betas that Dagster's own code sets off."""
        warnings.filterwarnings("ignore", message="Parameter `owners` of initializer", category=dg.BetaWarning)
        with disable_dagster_warnings():
            return super().build_defs()

    def fetch_state(self) -> State:
        """The credentials now, kept for the day when they cannot be asked for."""
        try:
            state: State = {_CREDENTIALS: [facts.as_state() for facts in self._fetch()]}
        except CarbonError as error:
            return self._fallback(error)
        _keep(self._last_seen, state)
        return state

    def defs_from_state(self, state: State) -> dg.Definitions:
        """The definitions of these credentials."""
        return self._build([facts_from_state(each) for each in state[_CREDENTIALS]])

    def _fallback(self, error: CarbonError) -> State:
        """What was seen last; the error itself where nothing ever was."""
        try:
            state: State = json.loads(self._last_seen.read_text())
        except (OSError, ValueError):
            raise error from None
        logging.getLogger("dagster").warning(
            "%s — the definitions show what %s kept of the last time", error.message, self._last_seen
        )
        return state


def _keep(path: Path, state: State) -> None:
    """Write the state beside its place and move it there, so that nobody ever reads half of it."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            json.dump(state, file, indent=1)
        os.replace(file.name, path)  # noqa: PTH105 - Path.replace would need a second Path
    except OSError as error:
        logging.getLogger("dagster").warning("%s could not be written (%s)", path, error.strerror)
