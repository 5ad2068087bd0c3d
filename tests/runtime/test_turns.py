"""Slow code keeps the event loop for about a tenth of a second at a time, and partitions take turns."""

import asyncio
from itertools import pairwise

import pytest

import streamkit as sk
from streamkit.model.commit import Commit, Member, OutBatch
from streamkit.model.ids import TopicPartition
from streamkit.model.keys import kafka_partition
from streamkit.progress.pace import CHUNK_FIRST, CHUNK_LAST, CHUNK_MS, TURN_MS, Pace
from streamkit.runtime.commit import Committer
from streamkit.testing import Harness
from streamkit.testing.virtual_time import VirtualLoop, in_process

SLOW_S = 0.025
WORDS = sk.topic("words", str)
LENGTHS = sk.topic("lengths", int)


def work(seconds: float) -> None:
    """Take virtual time, as a blocking call takes real time."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.spend(seconds)


def slowly(word: str) -> int:
    work(float(word) if word else SLOW_S)
    return len(word)


@pytest.fixture
def turns_ms(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each step of the event loop took that took any time."""
    took: list[float] = []
    keep = VirtualLoop._keep_at_work

    def watched(self: VirtualLoop, process: str | None) -> None:
        took.append(self._spent_s * 1000)
        keep(self, process)

    monkeypatch.setattr(VirtualLoop, "_keep_at_work", watched)
    return took


def mapping() -> sk.Pipeline:
    pipeline = sk.pipeline("slow")
    pipeline.read(WORDS).map(slowly).write(LENGTHS)
    return pipeline


def test_a_chunk_begins_small_and_grows_while_it_is_quick() -> None:
    pace = Pace()
    assert pace.size == CHUNK_FIRST
    pace.learn(CHUNK_FIRST, 1)
    assert pace.size == 2 * CHUNK_FIRST
    pace.learn(1, 0)  # not a full one: says nothing
    assert pace.size == 2 * CHUNK_FIRST
    pace.learn(2 * CHUNK_FIRST, 400)
    assert pace.size == 1
    pace.learn(1, CHUNK_MS)
    assert pace.size == 2


def test_a_chunk_grows_no_larger_than_the_cache() -> None:
    pace = Pace()
    for _ in range(20):
        pace.learn(pace.size, 0)
    assert pace.size == CHUNK_LAST


def test_a_chunk_of_one_stays_one_until_it_may_grow_again() -> None:
    pace = Pace()
    pace.learn(CHUNK_FIRST, 0)
    pace.keep_single()
    for _ in range(10):
        pace.learn(1, 0)
    assert pace.size == 1
    pace.grow_again()
    pace.learn(1, 0)
    assert pace.size == 2


def test_slow_records_give_the_loop_back_after_a_turn(turns_ms: list[float]) -> None:
    with Harness(mapping(), partitions=1) as harness:
        harness.send(WORDS, *[""] * 200)
        harness.run()
        assert len(harness.read(LENGTHS)) == 200
    assert max(turns_ms) <= TURN_MS + SLOW_S * 1000


def test_slow_records_are_committed_as_they_go(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    begin = Committer.begin

    def counted(self: Committer, tasks: object, member: object) -> None:
        begun.append(self.commits)
        begin(self, tasks, member)  # type: ignore[arg-type]

    monkeypatch.setattr(Committer, "begin", counted)
    with Harness(mapping(), partitions=1) as harness:
        harness.send(WORDS, *[""] * 200)
        harness.run()
    assert len(begun) >= 200 * SLOW_S / 0.3


def test_handed_over_records_that_are_slow_give_the_loop_back(turns_ms: list[float]) -> None:
    pipeline = sk.pipeline("handed")
    pipeline.read(WORDS).key_by(lambda word: word).map(slowly).write(LENGTHS)
    with Harness(pipeline, partitions=1) as harness:
        harness.run()
        assert harness.workers[0].loop is not None
        assert harness.workers[0].loop.local.partitions == 1
        turns_ms.clear()
        harness.send(WORDS, *[""] * 200)
        harness.run()
        assert len(harness.read(LENGTHS)) == 200
    assert max(turns_ms) <= TURN_MS + SLOW_S * 1000


def test_reading_slows_down_to_what_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that becomes many slow ones: a span must not hold hours of them."""
    pipeline = sk.pipeline("many")
    many = pipeline.read(WORDS).flat_map(lambda word: [word] * 40, to=str)
    many.key_by(lambda word: word).map(slowly).write(LENGTHS)
    spans: list[float] = []
    begin = Committer.begin

    def timed(self: Committer, tasks: object, member: object) -> None:
        spans.append(asyncio.get_running_loop().time())
        begin(self, tasks, member)  # type: ignore[arg-type]

    with Harness(pipeline, partitions=1) as harness:
        harness.run()
        monkeypatch.setattr(Committer, "begin", timed)
        harness.send(WORDS, *[""] * 100)
        harness.run()
        assert len(harness.read(LENGTHS)) == 4000
    gaps = [later - sooner for sooner, later in pairwise(spans)]
    assert max(gaps[5:]) <= 2 * 40 * SLOW_S


class Slow(sk.Operator[str, int, int]):
    """A timer for every record, each of which takes its time."""

    def on_record(self, value: int, ctx: sk.Context[str, int]) -> None:
        ctx.set_timer(value)

    def on_timer(self, timer: sk.Timer, ctx: sk.Context[str, int]) -> None:
        work(SLOW_S)
        ctx.emit(timer.time)


def test_slow_timers_give_the_loop_back_after_a_turn(turns_ms: list[float]) -> None:
    times = sk.topic("times", int, time=lambda value: value)
    pipeline = sk.pipeline("timers")
    pipeline.read(times).key_by(lambda _: "k").process(Slow()).write(LENGTHS)
    with Harness(pipeline, partitions=1) as harness:
        harness.send(times, *range(1000, 1300))
        harness.run()
        harness.send(times, 100_000)
        harness.run()
        assert len(harness.read(LENGTHS)) == 300
    assert max(turns_ms) <= 2 * (TURN_MS + SLOW_S * 1000)


def test_slow_steps_behind_results_that_were_held_back_give_the_loop_back(turns_ms: list[float]) -> None:
    def slowly_counted(_key: str, count: int) -> int:
        work(SLOW_S)
        return count

    pipeline = sk.pipeline("held")
    counts = pipeline.read(WORDS).key_by(lambda word: word).count(name="n", updates="latest")
    counts.map_keyed(slowly_counted).write(LENGTHS)
    with Harness(pipeline, partitions=1, workers=0, commit_interval_s=1.0) as harness:
        harness.send(WORDS, *[str(number) for number in range(200)])
        harness.scale(1)
        harness.run()
        assert len(harness.read(LENGTHS)) == 200
    assert max(turns_ms) <= TURN_MS + SLOW_S * 1000


def fair(seen: dict[str, float]) -> sk.Pipeline:
    """Notes when it meets a quick word; a slow one takes a second."""

    def note(word: str) -> int:
        seen[word] = asyncio.get_running_loop().time()
        if word.startswith("slow"):
            work(1.0)
        return len(word)

    pipeline = sk.pipeline("fair")
    pipeline.read(WORDS).map(note).write(LENGTHS)
    return pipeline


def key_for(partition: int) -> str:
    return next(key for key in "abcdefgh" if kafka_partition(key.encode(), 2) == partition)


def test_a_slow_partition_takes_turns_with_the_others() -> None:
    seen: dict[str, float] = {}
    with Harness(fair(seen), partitions=2, workers=0) as harness:
        harness.send(WORDS, *["slow"] * 100, key=key_for(0))
        harness.send(WORDS, "quick", key=key_for(1))
        harness.scale(1)
        harness.run()
        assert len(harness.read(LENGTHS)) == 101
    assert seen["quick"] < 20


def test_what_comes_to_others_while_a_slow_partition_is_worked_on_is_read() -> None:
    seen: dict[str, float] = {}
    with Harness(fair(seen), partitions=2, workers=0) as harness:
        harness.send(WORDS, *["slow"] * 100, key=key_for(0))
        batch = harness._writer.batch()
        batch.append(0, 0, None, b"quick", [])
        out = OutBatch(TopicPartition(WORDS.name, 1), batch, 1)

        async def later() -> None:
            await asyncio.sleep(30)
            await harness._writer.commit(Commit([out], {}, Member("", "", -1)))

        harness._loop.create_task(later(), context=in_process(None))
        harness.scale(1)
        harness.run()
        assert len(harness.read(LENGTHS)) == 101
    assert 30 <= seen["quick"] < 35
