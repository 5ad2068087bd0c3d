"""Local state that is brought up to date by the tail of its changelog, or discarded."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from streamkit.config import Settings
from streamkit.errors import Retry
from streamkit.model.ids import TopicPartition
from streamkit.operate.offsets_apply import drop_state
from streamkit.operate.offsets_plan import plan_anew
from streamkit.runtime import assign, restore
from streamkit.runtime.agree import Disagreement
from streamkit.runtime.damage import StateDamaged
from streamkit.testing import Harness
from streamkit.testing.harness_worker import HarnessWorker
from streamkit.testing.virtual_time import run
from tests.progress.alarms import ORDERS, RINGS, Order, ringing
from tests.runtime.pages import COUNTS, VIEWS, View, counting


def forget_tombstones(harness: Harness) -> None:
    """As Kafka's cleaner does once tombstones are older than `delete.retention.ms`."""
    for topic in harness._broker.topics.names():
        if "changelog" in topic:
            for partition in harness._broker.topics.find(topic).partitions:
                partition.compact()
                for batch in partition.batches[:-2]:
                    batch.records = [record for record in batch.records if record.value is not None]


def test_state_so_old_that_deletions_were_forgotten_is_restored_from_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restore, "LOCAL_STATE_MS_MAX", 500)
    with Harness(ringing(), partitions=1, workers=1) as harness:
        for key in ("a", "b", "c"):
            harness.send(ORDERS, Order(0, set=[10]), key=key)
        harness.run()
        harness.crash(0)  # its disk stays as it is, with three timers on it
        harness.workers.append(HarnessWorker(1))
        harness._start(harness.workers[1])
        harness._do(harness._until(harness._is_settled))
        harness.send(ORDERS, Order(100), key="a")
        harness.run()
        assert sorted(harness.read(RINGS)) == ["a@10", "b@10", "c@10"]
        harness.advance(1)
        harness.send(ORDERS, Order(101), key="zz")
        harness.run()
        forget_tombstones(harness)
        harness.crash(1)
        harness.restart(0)
        harness.send(ORDERS, Order(102), key="zz")
        harness.run()
        harness.advance(1)
        assert harness.read(RINGS) == []


def stand_still(monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """The first restores stand still in the middle of their copying; where each began to copy."""
    copy, begun = restore.Restoring._copy, []

    async def copy_slowly(self: Any, reader: Any, store: Any, tail: Any, end: int) -> None:
        begun.append(tail.at)
        await copy(self, reader, store, tail, end)
        if len(begun) <= times:
            await asyncio.sleep(2.0)

    monkeypatch.setattr(restore, "LOCAL_STATE_MS_MAX", 1500)
    monkeypatch.setattr(restore.Restoring, "_copy", copy_slowly)
    return begun


def test_a_restore_that_stood_still_for_longer_than_deletions_are_kept_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with capture_logs() as logs, Harness(counting(), partitions=1, local_shuffle=False) as harness:
        harness.send(VIEWS, View("home"))
        harness.run()
        harness.crash()
        begun = stand_still(monkeypatch, times=2)
        harness.restart()
        assert begun.count(0) >= 2  # each of the two tasks begins with an empty store
        harness.send(VIEWS, View("home"))
        harness.run()
        assert [count.views for count in harness.read(COUNTS)] == [1, 2]
    assert any("longer than the changelog is sure to keep" in each.get("error", "") for each in logs)


def test_restores_that_are_always_too_slow_end_with_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    with Harness(counting(), partitions=1) as harness:
        harness.send(VIEWS, View("home"))
        harness.run()
        harness.crash()
        stand_still(monkeypatch, times=10**9)
        with pytest.raises(StateDamaged) as caught:
            harness.restart()
        assert "too slow" in caught.value.hint


def test_local_state_that_a_person_has_given_up_is_discarded_without_a_warning() -> None:
    with capture_logs() as logs, Harness(counting(), partitions=4, local_shuffle=False) as harness:
        for number in range(40):
            harness.send(VIEWS, View(f"page-{number}"), key=str(number))
        harness.run()
        harness.crash()
        harness.advance(20)  # until the group has forgotten it
        admin, plan = harness._log.admin(), harness._plan
        planned = harness._do(plan_anew(plan, admin, "earliest"))
        harness._do(drop_state(plan, admin, None))
        places = {TopicPartition(each.topic, each.partition): each.after for each in planned.moves}
        harness._do(admin.reset_positions(plan.name, places))
        harness.read(COUNTS)
        harness.restart()
        harness.run()
        assert len(harness.read(COUNTS)) == 40
    about = [entry for entry in logs if "discarded" in entry["event"]]
    assert [(entry["log_level"], entry["event"]) for entry in about] == [
        ("info", "the pipeline was begun anew: local state from before is discarded")
    ]


def test_a_disagreement_that_has_passed_does_not_count_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two short ones with an outage between them are not one that lasts."""

    class Disagreeing:
        def __init__(self, *_: object) -> None:
            self.now_s = asyncio.get_running_loop().time()

        async def run(self) -> str:
            if self.now_s == 0 or 60 < self.now_s < 63:
                raise Disagreement(TopicPartition("views", 0), 5, 7)
            if self.now_s <= 60:
                await asyncio.sleep(1)
                raise Retry("no answer")
            return "restored"

    async def restored() -> object:
        roster: Any = object.__new__(assign.Roster)
        roster._settings = Settings(restart_delay_first_s=0.1, restart_delay_last_s=2.0)
        roster._slots = asyncio.Semaphore(1)
        roster._log = roster._persistence = None
        roster._with_start = as_it_is
        return await roster._restore(SimpleNamespace(id="counting[0]"), None)

    async def as_it_is(found: object, _task: object) -> object:
        return found

    monkeypatch.setattr(assign, "Restoring", Disagreeing)
    assert run(restored(), 0) == "restored"
