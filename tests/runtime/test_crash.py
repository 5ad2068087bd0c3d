from typing import Any

import pytest

import streamkit as sk
from streamkit.errors import IncompatiblePlan, PositionsMoved
from streamkit.model.ids import Position, TopicPartition
from streamkit.runtime.agree import DISAGREEMENT_S
from streamkit.state.memory import MemoryStores
from streamkit.testing import Harness
from streamkit.testing.memory.admin import MemoryAdmin
from tests.runtime.pages import COUNTS, VIEWS, View, as_count, check_running_counts, counting, page_of


def send(harness: Harness, count: int) -> None:
    for number in range(count):
        harness.send(VIEWS, View(f"page-{number % 9}"), key=str(number))


@pytest.mark.parametrize("guarantee", ["exactly_once"])
@pytest.mark.parametrize("pause_s", [0.0, 0.001, 0.005, 0.02, 0.05])
def test_a_crash_at_any_moment_loses_and_repeats_nothing(guarantee, pause_s):
    with Harness(counting(), workers=2, guarantee=guarantee) as harness:
        for turn in range(6):
            send(harness, 50)
            harness.advance(pause_s)
            harness.crash(turn % 2)
            harness.restart(turn % 2)
        harness.run()
        assert sum(check_running_counts(harness.read(COUNTS)).values()) == 300


def test_a_lost_disk_is_restored_from_the_changelog():
    with Harness(counting()) as harness:
        send(harness, 90)
        harness.run()
        harness.crash()
        harness.workers[0].stores = MemoryStores()
        harness.restart()
        send(harness, 90)
        harness.run()
        assert check_running_counts(harness.read(COUNTS)) == {f"page-{page}": 20 for page in range(9)}


def test_workers_come_and_go():
    with Harness(counting(), workers=1, partitions=6) as harness:
        for workers in (3, 2, 4, 1):
            send(harness, 60)
            harness.advance(0.01)
            harness.scale(workers)
        harness.run()
        assert sum(check_running_counts(harness.read(COUNTS)).values()) == 240


def test_a_dead_workers_tasks_go_to_the_others():
    with Harness(counting(), workers=2) as harness:
        send(harness, 50)
        harness.crash(0)
        send(harness, 50)
        harness.run()
        assert sum(check_running_counts(harness.read(COUNTS)).values()) == 100


def test_at_least_once_never_loses():
    with Harness(counting(), workers=2, guarantee="at_least_once") as harness:
        for turn in range(4):
            send(harness, 50)
            harness.advance(0.003)
            harness.crash(turn % 2)
            harness.restart(turn % 2)
        harness.run()
        last: dict[str, int] = {}
        for count in harness.read(COUNTS):
            last[count.page] = max(count.views, last.get(count.page, 0))
        assert sum(last.values()) >= 200


def test_at_most_once_never_repeats():
    with Harness(counting(), workers=2, guarantee="at_most_once") as harness:
        send(harness, 90)
        harness.run()
        assert check_running_counts(harness.read(COUNTS)) == {f"page-{page}": 10 for page in range(9)}
        for turn in range(4):
            send(harness, 45)
            harness.advance(0.003)
            harness.crash(turn % 2)
            harness.restart(turn % 2)
        harness.run()
        assert len(harness.read(COUNTS)) <= 180


def renamed(new_name: str) -> sk.Pipeline:
    pipeline = sk.pipeline("pages")
    pipeline.read(VIEWS).filter(lambda view: bool(view.page), name="not_empty").key_by(page_of).count(
        name=new_name
    ).map_keyed(as_count).write(COUNTS)
    return pipeline


def test_a_pipeline_that_changed_compatibly_goes_on_with_its_state():
    with Harness(counting()) as harness:
        send(harness, 9)
        harness.run()
        harness.change_pipeline(renamed("views_per_page"))
        send(harness, 9)
        harness.run()
        assert check_running_counts(harness.read(COUNTS)) == {f"page-{page}": 2 for page in range(9)}


def test_a_renamed_stateful_step_is_refused_with_a_hint():
    with Harness(counting()) as harness:
        send(harness, 9)
        harness.run()
        with pytest.raises(IncompatiblePlan) as refused:
            harness.change_pipeline(renamed("other_name"))
        assert "views_per_page" in refused.value.detail
        assert "former names" in refused.value.hint


def early(monkeypatch: pytest.MonkeyPatch, harness: Harness, seconds: float) -> None:
    """For a while the group's coordinator tells where the group stood long ago, as one that is still loading may."""
    right = MemoryAdmin.positions
    until_ms = harness.now_ms + seconds * 1000

    async def stale(self: MemoryAdmin, *given: Any, **named: Any) -> dict[TopicPartition, int]:
        found = await right(self, *given, **named)
        return dict.fromkeys(found, 1) if harness.now_ms < until_ms else found

    monkeypatch.setattr(MemoryAdmin, "positions", stale)


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_most_once"])
def test_positions_that_are_told_too_early_are_not_believed(monkeypatch, guarantee):
    with Harness(counting(), partitions=1, guarantee=guarantee) as harness:
        send(harness, 90)
        harness.run()
        harness.crash()
        early(monkeypatch, harness, DISAGREEMENT_S / 2)
        harness.restart()
        send(harness, 90)
        harness.run()
        assert check_running_counts(harness.read(COUNTS)) == {f"page-{page}": 20 for page in range(9)}


def test_positions_that_stay_wrong_stop_the_worker_with_the_command_that_helps(monkeypatch):
    with Harness(counting(), partitions=1) as harness:
        send(harness, 90)
        harness.run()
        harness.crash()
        early(monkeypatch, harness, 10 * DISAGREEMENT_S)
        with pytest.raises(PositionsMoved) as refused:
            harness.restart()
        assert "--to committed" in refused.value.hint


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once", "at_most_once"])
def test_a_group_that_was_set_before_the_first_start_begins_there(guarantee):
    with Harness(counting(), workers=0, partitions=1, guarantee=guarantee) as harness:
        send(harness, 90)
        harness._broker.groups.reset("pages", {TopicPartition("views", 0): Position(45)})
        harness.scale(1)
        harness.run()
        harness.crash()
        harness.restart()
        send(harness, 9)
        harness.run()
        assert sum(check_running_counts(harness.read(COUNTS)).values()) == 54
