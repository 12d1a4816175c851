"""New tables become partitions, and the sensor says what it decided."""

from __future__ import annotations

import json
import time

import dagster as dg
import pytest

from carbon_pipeline.errors import SourceUnreachable
from carbon_pipeline.orchestration.build import build_definitions
from carbon_pipeline.orchestration.discovery import (
    DISCOVERY_SECONDS,
    due_sources,
    why_nothing_is_due,
)
from carbon_pipeline.orchestration.port import Pipeline, Ratifier, Survey
from carbon_pipeline.orchestration.translator import CredentialFacts
from carbon_pipeline_tests.orchestration.conftest import Stage
from carbon_pipeline_tests.orchestration.test_definitions import facts


def test_a_new_table_is_a_new_partition_and_none_is_ever_taken_away(shop: Stage) -> None:
    """Discovery adds what is new; a dropped table's partition stays, with its history."""
    assert shop.instance.get_dynamic_partitions(shop.facts.joined) == ["public.customers", "public.orders"]
    shop.execute('DROP TABLE customers; CREATE TABLE "Odd Name" (a int)')
    assert shop.run("discover").success
    after = shop.instance.get_dynamic_partitions(shop.facts.joined)
    assert after[:2] == ["public.customers", "public.orders"]
    assert [key.startswith("public.odd_name_") for key in after[2:]] == [True]


class OneAway(Pipeline):
    """Two sources, one of which cannot be reached."""

    def __init__(self, real: Pipeline, away: CredentialFacts) -> None:
        self._real = real
        self._away = away

    def credentials(self) -> tuple[CredentialFacts, ...]:
        """Not asked here."""
        return self._real.credentials()

    def survey(self, facts: CredentialFacts) -> Survey:
        """One works."""
        if facts == self._away:
            raise SourceUnreachable("no connection")
        return self._real.survey(facts)

    def ratifier(self) -> Ratifier:
        """Not asked here."""
        return self._real.ratifier()


def test_a_source_that_is_away_keeps_nobody_waiting(shop: Stage) -> None:
    """The run fails with that source's remedy after it has looked at all the others."""
    away = facts("main", "away")
    shop.execute("CREATE TABLE more (a int)")
    job = build_definitions(
        [away, shop.facts], pipeline=OneAway(shop.pipeline, away), code_version="1"
    ).resolve_job_def("discover")
    result = job.execute_in_process(instance=shop.instance, raise_on_error=False)
    (event,) = [event for event in result.all_events if event.is_step_failure]
    data = event.step_failure_data.user_failure_data
    assert data is not None
    assert data.description == "1 of 2 sources could not be looked at: main/away: no connection"
    assert list(data.metadata) == ["main/away"]
    assert "public.more" in shop.instance.get_dynamic_partitions(shop.facts.joined)


def tick(stage: Stage, instance: dg.DagsterInstance, cursor: str | None = None) -> dg.SensorResult:
    """One evaluation of the sensor."""
    sensor = stage.sensor("discover_new_tables")
    context = dg.build_sensor_context(
        instance=instance, cursor=cursor, definitions=stage.definitions, resources={"carbon": stage.pipeline}
    )
    result = sensor(context)
    assert isinstance(result, dg.SensorResult)
    return result


def test_the_sensor_launches_discovery_once_and_then_says_when_it_will_again(
    shop: Stage, instance: dg.DagsterInstance
) -> None:
    """The first tick asks for every source; the next one skips, saying why."""
    first = tick(shop, instance)
    (request,) = first.run_requests or []
    assert request.run_config["ops"]["look_at_sources"]["config"] == {"credentials": [shop.facts.label]}
    second = tick(shop, instance, first.cursor)
    assert not second.run_requests
    assert second.skip_reason is not None
    assert second.skip_reason.skip_message is not None
    assert "was connected after this code location was loaded" in second.skip_reason.skip_message or (
        "the next look is due in 15 minutes" in second.skip_reason.skip_message
    )


def test_the_sensor_waits_for_a_discovery_on_its_way(shop: Stage, instance: dg.DagsterInstance) -> None:
    """A second discovery is not launched beside the first."""
    instance.create_run_for_job(shop.definitions.resolve_job_def("discover"), status=dg.DagsterRunStatus.STARTED)
    skipped = tick(shop, instance)
    assert skipped.skip_reason is not None
    assert skipped.skip_reason.skip_message == "a discovery is on its way"


def test_a_credential_that_the_definitions_lack_is_named() -> None:
    """The sensor tells a person to reload the location, which no sensor can do itself."""
    known, new = facts("main", "a"), facts("main", "b")
    reason = why_nothing_is_due([known], [known, new], {known.label: 0.0}, 0.0)
    assert reason.startswith("main/b was connected after this code location was loaded: reload it")
    assert "carbon connect" in why_nothing_is_due([], [], {}, 0.0)


@pytest.mark.parametrize(("ago", "due"), [(0, False), (DISCOVERY_SECONDS - 1, False), (DISCOVERY_SECONDS, True)])
def test_a_source_is_due_after_a_while(ago: float, due: bool) -> None:
    """Whoever was looked at lately is left alone; whoever never was is due."""
    now = time.time()
    assert due_sources(["a", "b"], {"a": now - ago, "b": now}, now) == (["a"] if due else [])
    assert due_sources(["new"], {}, now) == ["new"]


def test_the_cursor_keeps_what_is_known_of_others(shop: Stage, instance: dg.DagsterInstance) -> None:
    """A source that is not due keeps its time."""
    other = json.dumps({"other/one": 5.0})
    cursor = json.loads(tick(shop, instance, other).cursor or "{}")
    assert cursor["other/one"] == 5.0
    assert cursor[shop.facts.label] > 5
