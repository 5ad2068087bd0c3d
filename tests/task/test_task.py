import itertools
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

import streamkit as sk
from streamkit.errors import Bug
from streamkit.kafka.ports import Assignment
from streamkit.model.commit import Member
from streamkit.model.counts import DEAD_LETTERS
from streamkit.model.ids import TaskId, TopicPartition
from streamkit.progress.task_clock import ClockState
from streamkit.runtime.assign import _follows as follows
from streamkit.state.memory import MemoryStores
from streamkit.state.task_state import TaskState
from streamkit.task.failure_book import Condemned
from streamkit.task.task import ALLOWED, Life, Restored, Task
from streamkit.testing import Harness
from tests.operators.scope import writing_to
from tests.progress.alarms import ORDERS, RINGS, Alarms, Order, ringing
from tests.runtime.pages import COUNTS, VIEWS, as_count, counting


def a_task() -> Task:
    stage = counting().plan().stages[0]
    return Task(TaskId(stage.name, 0), stage, {})


def test_every_state_says_where_it_may_go():
    assert ALLOWED.keys() == set(Life)


@pytest.mark.parametrize(("before", "after"), list(itertools.product(Life, Life)))
def test_a_life_makes_only_the_moves_that_are_drawn(before, after):
    task = a_task()
    task.life = before
    if after in ALLOWED[before]:
        task.move(after)
        assert task.life is after
    else:
        with pytest.raises(Bug):
            task.move(after)


def test_a_condemned_record_is_remembered_until_it_is_committed():
    task = a_task()
    place = TopicPartition("views", 0)
    reason = Condemned("step", "error", "")
    task.book.records = {place: {3: reason, 8: reason}}
    task.landed({place: 5}, ClockState(), 1)
    assert task.book.records == {place: {8: reason}}
    task.landed({place: 9}, ClockState(), 2)
    assert task.book.records == {place: {}}


def test_what_a_task_without_event_time_has_counted_goes_on_when_it_is_restored():
    task = a_task()
    state = TaskState(MemoryStores().open("task"), task.stage.stores)
    outputs = {each.topic: writing_to([]) for each in task.stage.outputs}
    for _ in range(2):
        task.life = Life.RESTORING
        task.start(Restored(state, {}, 0, "birth"), outputs)
        task.clock.counts[DEAD_LETTERS] += 1
        task.landed({}, task.clock.snapshot(), 1)
    assert task.committed_clock.counts[DEAD_LETTERS] == 2


def test_a_task_is_kept_only_over_the_very_next_generation_of_the_same_member():
    def assigned(member_id: str, generation: int) -> Assignment:
        return Assignment(Member("group", member_id, generation), (), frozenset())

    before = assigned("a", 4)
    assert follows(before, assigned("a", 5))
    assert not follows(before, assigned("a", 6)), "somebody else may have owned the task in generation 5"
    assert not follows(before, assigned("b", 5)), "we were thrown out in between"
    assert not follows(before, assigned("a", 4))
    assert not follows(None, assigned("a", 5))


def view(timestamp: int) -> Any:
    return SimpleNamespace(key=b"home", value=b'{"page":"home"}', timestamp=timestamp)


def test_a_rewind_forgets_what_operators_hold_back():
    pipeline = sk.pipeline("held")
    pipeline.read_keyed(VIEWS).count(name="n", updates="latest").map_keyed(as_count).write(COUNTS)
    (stage,) = pipeline.plan().stages
    task = Task(TaskId(stage.name, 0), stage, {})
    written: list[tuple[bytes | None, bytes | None, int]] = []
    outputs = {"counts": writing_to(written)}
    state = TaskState(MemoryStores().open("task"), stage.stores)
    task.life = Life.RESTORING
    task.start(Restored(state, {}, 0, "birth"), outputs)
    task.chain.entries["views"]([view(1)])
    task.rewind(outputs)
    assert [list(held.take()) for held, _ in task.chain.held] == [[]]
    task.chain.entries["views"]([view(2)])
    ((key, value, timestamp),) = next(iter(task.chain.held))[0].take()
    assert (key, value, timestamp) == (b"home", 1, 2)


def test_the_count_of_a_timer_that_failed_is_forgotten_after_an_hour() -> None:
    """A timer of processing time that has fired leaves nothing behind to tell it from one that is still to come."""
    tries: Counter[int] = Counter()

    class Flaky(Alarms):
        def on_timer(self, timer: sk.Timer, ctx: sk.Context) -> None:
            tries[timer.time] += 1
            if tries[timer.time] == 1:
                raise ValueError("away for a moment")
            super().on_timer(timer, ctx)

    policy = sk.dead_letter(retries=3, delay_s=0.05)
    with Harness(ringing(Flaky(), on_error=policy), partitions=1) as harness:
        for number in range(5):
            harness.send(ORDERS, Order(number, set_in=[50 + number]), key="a")
            harness.advance(2.0)
        (task,) = harness._running()
        assert len(task.book.attempts) == 5
        harness.advance(3700.0)
        harness.send(ORDERS, Order(9), key="a")
        harness.run()
        assert len(harness.read(RINGS)) == 5
        assert not task.book.attempts
