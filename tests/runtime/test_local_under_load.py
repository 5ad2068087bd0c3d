"""Shuffles of a worker that is never done with what it has fetched: they come to go by memory all the same."""

from collections import Counter, deque
from types import SimpleNamespace

import pytest

from streamkit.runtime.local import Way
from streamkit.testing import Harness
from tests.runtime.pages import COUNTS, VIEWS, View, check_running_counts, counting

BATCHES = 400


def send(harness: Harness, count: int) -> None:
    for number in range(count):
        harness.send(VIEWS, View(f"page-{number % 9}"), key=str(number))


def test_gathering_begins_while_quick_batches_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    with Harness(counting(), partitions=1, slice_records=100) as harness:
        harness.advance(0.2)
        loop = harness.workers[0].loop
        assert loop is not None
        send(harness, BATCHES)
        harness.run()  # by now it is known that the records are quick
        loop.local.leave()
        seen: Counter[tuple[Way, bool]] = Counter()
        begin = loop.local.begin

        def begin_beside(now_s: float) -> None:
            seen[loop.local.way, loop._intakes.drained] += 1
            begin(now_s)

        monkeypatch.setattr(loop.local, "begin", begin_beside)
        monkeypatch.setattr(loop.local, "choose", lambda _: None)  # no moment comes in which nothing waits
        send(harness, BATCHES)
        harness.advance(0.5)
        assert seen[Way.TOPIC, False]
        assert loop.local.way is Way.GATHERING
        monkeypatch.undo()
        harness.run()
        assert loop.local.way is Way.LOCAL
        check_running_counts(harness.read(COUNTS))


def test_gathering_does_not_begin_while_slow_batches_wait() -> None:
    with Harness(counting()) as harness:
        send(harness, BATCHES)
        harness.run()
        loop = harness.workers[0].loop
        assert loop is not None
        partition, task = next(iter(loop.roster.owner_of.items()))
        loop._intakes._waiting[partition] = deque([SimpleNamespace(task=task, done=False)])
        task.pace.learn(1, 25)
        assert not loop._intakes.are_quick
        task.pace.learn(1, 0)
        assert loop._intakes.are_quick
        loop._intakes.drop()
