"""Shuffles that stay within a worker: what goes by memory, what must not, and that nobody can tell the difference."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

import streamkit as sk
from streamkit.model.ids import TopicPartition
from streamkit.runtime.local import BACKLOG_MAX, GATHERING_S_MAX, HandedBatch, LocalShuffles, Way
from streamkit.runtime.pauses import Pauses
from streamkit.task.emit import RECORD_OVERHEAD_BYTES, Lane
from streamkit.task.limits import TopicLimits
from streamkit.task.task import Life
from streamkit.testing import Harness
from tests.progress.alarms import raw, shuffle_topics
from tests.runtime.pages import COUNTS, VIEWS, Count, View, as_count, check_running_counts, counting, page_of

GATHERED_S = 0.2


def ways(harness: Harness) -> list[Way]:
    return [worker.loop.local.way for worker in harness.workers if worker.loop is not None]


def send(harness: Harness, count: int) -> None:
    for number in range(count):
        harness.send(VIEWS, View(f"page-{number % 9}"), key=str(number))


def shuffled(harness: Harness, pipeline: sk.Pipeline) -> int:
    return sum(len(raw(harness, topic)) for topic in shuffle_topics(pipeline))


def test_one_worker_hands_everything_over_and_writes_nothing_to_the_shuffle():
    pipeline = counting()
    with Harness(pipeline) as harness:
        harness.advance(GATHERED_S)
        assert ways(harness) == [Way.LOCAL]
        send(harness, 90)
        harness.run()
        assert check_running_counts(harness.read(COUNTS)) == {f"page-{page}": 10 for page in range(9)}
        assert shuffled(harness, pipeline) == 0


def test_one_commit_carries_a_record_through_two_shuffles():
    pipeline = sk.pipeline("two")
    counted = pipeline.read(VIEWS).key_by(page_of).count(name="n").map_keyed(as_count)
    counted.key_by(lambda count: str(count.views), key_type=str, name="by_n").count(name="m").map_keyed(
        as_count
    ).write(COUNTS)
    with Harness(pipeline) as harness:
        harness.advance(GATHERED_S)
        before = harness.workers[0].loop.committer.commits
        harness.send(VIEWS, View("home"))
        harness.run()
        assert harness.read(COUNTS) == [Count("1", 1)]
        assert harness.workers[0].loop.committer.commits == before + 1


def test_of_two_workers_each_hands_over_what_is_for_itself():
    pipeline = counting()
    with Harness(pipeline, workers=2) as harness:
        harness.advance(GATHERED_S)
        assert ways(harness) == [Way.LOCAL, Way.LOCAL]
        send(harness, 200)
        harness.run()
        assert sum(check_running_counts(harness.read(COUNTS)).values()) == 200
        assert 20 < shuffled(harness, pipeline) < 180


@pytest.mark.parametrize("settings", [{"local_shuffle": False}, {"guarantee": "at_least_once"}])
def test_without_a_transaction_or_when_told_so_everything_goes_by_the_topic(settings: dict[str, Any]):
    pipeline = counting()
    with Harness(pipeline, **settings) as harness:
        harness.advance(GATHERED_S)
        assert ways(harness) == [Way.TOPIC]
        send(harness, 50)
        harness.run()
        assert shuffled(harness, pipeline) == 50


class Order(sk.Operator[str, View, str]):
    """Says which number comes after which."""

    last = sk.value(int, -1)

    def on_record(self, value: View, ctx: sk.Context[str, str]) -> None:
        number = int(value.user)
        if number != self.last.get() + 1:
            ctx.emit(f"{number} after {self.last.get()}")
        self.last.set(number)


WRONG = sk.topic("wrong", str)


def in_order() -> sk.Pipeline:
    pipeline = sk.pipeline("in-order")
    pipeline.read(VIEWS).key_by(page_of).process(Order()).write(WRONG)
    return pipeline


class Fixture:
    """A worker with one task of each stage, which stands at offset 5 of a shuffle that ends at 9."""

    def __init__(self) -> None:
        self.source, self.shuffle = TopicPartition("in", 0), TopicPartition("hop", 0)
        self.tasks = [
            SimpleNamespace(life=Life.RUNNING, moved=False, positions={at: 5}, inputs={at: None})
            for at in (self.source, self.shuffle)
        ]
        self.roster = SimpleNamespace(
            version=1,
            tasks=dict(enumerate(self.tasks)),
            owner_of=dict(zip((self.source, self.shuffle), self.tasks, strict=True)),
            running=lambda: self.tasks,
        )
        self.committer = SimpleNamespace(ends={}, busy=False)
        self.paused: set[TopicPartition] = set()
        self.lane = Lane("hop", 1, SimpleNamespace(batch_bytes_max=1000), TopicLimits())  # type: ignore[arg-type]
        self.local = LocalShuffles({"hop": self.lane}, self.roster, self.committer, Pauses(self), self)  # type: ignore[arg-type]

    def pause(self, partition: TopicPartition) -> None:
        self.paused.add(partition)

    def resume(self, partition: TopicPartition) -> None:
        self.paused.discard(partition)

    async def end_offsets(self, partitions: list[TopicPartition], *, committed: bool) -> dict[Any, int]:
        assert (partitions, committed) == ([self.shuffle], False)
        return {self.shuffle: 9}

    async def look(self, now_s: float = 0.0) -> Way:
        self.local.follow()
        self.local.choose(now_s)
        await asyncio.sleep(0)
        return self.local.way


async def test_doors_open_when_all_that_was_written_before_is_read():
    worker = Fixture()
    assert await worker.look() is Way.GATHERING
    assert worker.paused == {worker.source, worker.shuffle}  # until it is known where the topic ends
    assert await worker.look() is Way.GATHERING
    assert worker.paused == {worker.source}
    worker.tasks[1].positions[worker.shuffle] = 9
    worker.committer.ends[worker.shuffle] = 12  # our own commit, of the time before
    assert await worker.look() is Way.GATHERING
    assert worker.paused == {worker.source}
    worker.tasks[1].positions[worker.shuffle] = 12
    worker.tasks[0].moved = True  # something is on its way to the topic
    assert await worker.look() is Way.GATHERING
    assert worker.paused == {worker.source, worker.shuffle}
    worker.tasks[0].moved, worker.committer.busy = False, True
    assert await worker.look() is Way.GATHERING
    worker.committer.busy = False
    assert await worker.look() is Way.LOCAL
    assert worker.paused == set()
    assert isinstance(worker.lane.batches[0], HandedBatch)


async def test_the_topics_are_not_asked_before_every_task_runs():
    worker = Fixture()
    worker.tasks[0].life = Life.RESTORING
    for _ in range(3):
        assert await worker.look() is Way.TOPIC
    assert not worker.local.is_changing
    worker.tasks[0].life = Life.RUNNING
    assert await worker.look() is Way.GATHERING
    asked = worker.local._asking
    worker.roster.version += 1  # another task came while they were asked: the answer is worth nothing
    assert await worker.look() is Way.GATHERING
    assert worker.local._asking is not asked


async def test_the_way_back_is_taken_at_once_and_keeps_what_was_handed_over():
    worker = Fixture()
    worker.tasks[1].positions[worker.shuffle] = 9
    worker.tasks[1].chain = SimpleNamespace(entries={"hop": None})
    while await worker.look() is not Way.LOCAL:
        pass
    worker.lane.add(0, b"k", b"v", 1)
    assert worker.lane.take() == []
    worker.roster.version += 1
    worker.local.follow()
    assert worker.local.way is Way.TOPIC
    assert worker.lane.batches == [None]
    assert worker.local.current() is not None
    worker.local.drop()
    assert worker.local.current() is None


async def test_gathering_that_does_not_end_is_given_up():
    worker = Fixture()
    assert await worker.look() is Way.GATHERING
    assert await worker.look(GATHERING_S_MAX) is Way.TOPIC
    assert worker.paused == set()


async def test_after_a_failure_everything_goes_by_the_topics_for_a_while():
    worker = Fixture()
    await worker.look()
    assert worker.local.is_changing
    worker.local.leave(until_s=7.0)
    for _ in range(3):
        assert await worker.look(6.9) is Way.TOPIC
    assert not worker.local.is_changing
    assert await worker.look(7.0) is Way.GATHERING


@pytest.mark.parametrize("pause_s", [0.0, 0.0003, 0.001, 0.004, 0.01])
def test_nothing_overtakes_what_was_written_to_the_topic_before(pause_s: float):
    with Harness(in_order(), commit_pause_s=0.002, slice_records=3) as harness:
        number = 0
        for turn in range(12):
            for _ in range(30):
                harness.send(VIEWS, View("home", str(number)), key="k")
                number += 1
                harness.advance(pause_s)
            if turn % 3 == 0:  # tasks go and come, the way changes each time
                harness.scale(2)
                harness.scale(1)
        harness.run()
        harness.advance(GATHERED_S)
        assert ways(harness) == [Way.LOCAL]
        assert harness.read(WRONG) == []


def test_a_backlog_in_the_topics_is_worked_off_before_anything_is_handed_over():
    pipeline = in_order()
    with Harness(pipeline, partitions=1) as harness:
        local = harness.workers[0].loop.local
        harness.advance(GATHERED_S)
        local.leave()
        (topic,) = shuffle_topics(pipeline)
        (task,) = [each for each in harness._running() if each.id.stage != "views"]
        task.positions[TopicPartition(topic, 0)] -= BACKLOG_MAX + 1
        harness.advance(GATHERED_S)
        assert ways(harness) == [Way.TOPIC]
        task.positions[TopicPartition(topic, 0)] += BACKLOG_MAX + 1
        harness.advance(2)
        assert ways(harness) == [Way.LOCAL]


def test_a_record_that_fails_behind_a_local_shuffle_is_a_dead_letter_with_a_place():
    class Refusing(sk.Operator[str, View, Count]):
        n = sk.value(int, 0)

        def on_record(self, value: View, ctx: sk.Context[str, Count]) -> None:
            self.n.set(self.n.get() + 1)
            ctx.emit(Count(value.page, self.n.get()))
            if value.user == "mallory":
                raise ValueError("mallory again")

    pipeline = sk.pipeline("refusing")
    pipeline.read(VIEWS).key_by(page_of).process(Refusing()).write(COUNTS)
    with Harness(pipeline) as harness:
        harness.advance(GATHERED_S)
        for number in range(30):
            harness.send(VIEWS, View(f"p{number % 3}", "mallory" if number == 7 else "ann"), key=str(number))
        harness.run()
        assert ways(harness) == [Way.TOPIC]  # for a while
        assert sum(check_running_counts(harness.read(COUNTS)).values()) == 29
        (letter,) = harness.dead_letters()
        (topic,) = shuffle_topics(pipeline)
        assert letter.headers["streamkit.topic"] == topic.encode()
        assert int(letter.headers["streamkit.offset"]) >= 0
        harness.advance(60)
        assert ways(harness) == [Way.LOCAL]


@pytest.mark.parametrize("pause_s", [0.0, 0.0005, 0.002, 0.01])
def test_a_crash_takes_both_ends_back(pause_s: float):
    with Harness(counting(), slice_records=2, commit_interval_s=0.001) as harness:
        for _ in range(6):
            harness.advance(GATHERED_S)
            send(harness, 40)
            harness.advance(pause_s)
            harness.crash()
            harness.restart()
        harness.run()
        assert sum(check_running_counts(harness.read(COUNTS)).values()) == 240


def test_held_back_results_cross_a_local_shuffle_at_the_end_of_the_span():
    pipeline = sk.pipeline("held")
    latest = pipeline.read(VIEWS).key_by(page_of).count(name="n", updates="latest").map_keyed(as_count)
    latest.key_by(lambda count: count.page, key_type=str, name="again").count(name="m").map_keyed(
        as_count
    ).write(COUNTS)
    with Harness(pipeline) as harness:
        harness.advance(GATHERED_S)
        send(harness, 45)
        harness.run()
        counts = check_running_counts(harness.read(COUNTS))
        assert sorted(counts) == [f"page-{page}" for page in range(9)]
        assert shuffled(harness, pipeline) == 0


def test_what_the_topic_would_refuse_is_refused_on_the_other_way_too():
    batch = HandedBatch(1000)
    assert batch.append(0, 5, b"k", b"v" * (999 - RECORD_OVERHEAD_BYTES), []) is not None
    assert batch.append(1, 5, b"k", b"v" * (1000 - RECORD_OVERHEAD_BYTES), []) is None
    assert batch.append(1, 5, None, None, []) is not None
    big = sk.pipeline("big")
    big.read(VIEWS).map(lambda view: View(view.page, view.user * 2_000_000), to=View).key_by(page_of).count(
        name="n"
    ).map_keyed(as_count).write(COUNTS)
    with Harness(big) as harness:
        harness.advance(GATHERED_S)
        harness.send(VIEWS, View("small", ""), View("large", "x"), View("small", ""))
        harness.run()
        assert check_running_counts(harness.read(COUNTS)) == {"small": 2}
        (letter,) = harness.dead_letters()
        assert b"larger than" in letter.headers["streamkit.error"]
