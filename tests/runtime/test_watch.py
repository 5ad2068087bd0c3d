"""A loop that does not come round: who holds it is said, the group is left, the process ends if it must."""

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

import streamkit as sk
from streamkit.codec.values import internal_codec
from streamkit.kafka.ports import FetchedBatch
from streamkit.model.ids import TaskId, TopicPartition
from streamkit.runtime.stuck_records import StuckRecords
from streamkit.runtime.watch import Watch, watching
from streamkit.runtime.whereabouts import Whereabouts, whereabouts
from streamkit.state.memory import MemoryStores
from streamkit.state.task_state import TaskState
from streamkit.state.timers import StoredTimer
from streamkit.task.ingest import FetchedIntake
from streamkit.task.task import Life, Restored, Task
from streamkit.testing import Harness
from streamkit.testing.virtual_time import VirtualLoop, in_process
from streamkit.testing.watched import watched
from tests.operators.scope import writing_to

LIMIT_S = 10.0
WORDS = sk.topic("words", str)
LENGTHS = sk.topic("lengths", int)


class Notes:
    """A notebook in memory."""

    def __init__(self) -> None:
        self.data = b""

    def read_losses(self) -> list[bytes]:
        return [self.data]

    def write_losses(self, data: bytes) -> None:
        self.data = data


class Group:
    """The little of a membership that a watch needs."""

    def __init__(self) -> None:
        self.left = 0

    def abandon(self) -> None:
        self.left += 1


class Rig:
    """A watch over a loop that answers when it is told to."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self.group = Group()
        self.notes = Notes()
        losses = StuckRecords(self.notes, sk.dead_letter(), lambda: 0)
        membership: Any = self.group
        self.watch = Watch(limit_s, membership, losses, lambda _at, _offset: False)
        self.now_s = 0.0
        self.pings = 0
        self.in_hand: Callable[[float], Whereabouts | None] = lambda _now: record(3)

    def ping(self) -> None:
        self.pings += 1

    def look_until(self, now_s: float) -> bool:
        """Look again and again; whether the process may go on."""
        while self.now_s < now_s:
            self.now_s += self.watch.look_s
            if not self.watch.look(self.now_s, lambda: self.in_hand(self.now_s), self.ping):
                return False
        return True


def record(offset: int) -> Whereabouts:
    return Whereabouts("step", TopicPartition("words", 0), offset, task=TaskId("stage", 0))


def test_a_loop_that_answers_is_left_alone() -> None:
    rig = Rig()
    for _ in range(100):
        rig.look_until(rig.now_s + 1)
        rig.watch.answer()
    assert rig.pings >= 100
    assert rig.group.left == 0
    assert rig.watch.last_hold() == {}


def test_a_loop_that_is_held_too_long_leaves_the_group_once_and_says_why() -> None:
    rig = Rig()
    with capture_logs() as logs:
        assert rig.look_until(LIMIT_S)
        assert rig.group.left == 0
        assert rig.look_until(LIMIT_S + 3)
    assert rig.group.left == 1
    told = next(entry for entry in logs if entry["log_level"] == "error")
    assert told["step"] == "step"
    assert told["in_hand"] == "words[0]@3"
    assert told["held_s"] >= LIMIT_S
    assert b'"offset":3' in rig.notes.data


def test_one_that_comes_back_is_told_so_and_watched_again() -> None:
    rig = Rig()
    rig.look_until(LIMIT_S + 3)
    rig.watch.answer()
    with capture_logs() as logs:
        assert rig.look_until(rig.now_s + LIMIT_S)
    assert [entry["event"] for entry in logs] == ["the event loop is back: joining the group again"]
    rig.watch.answer()
    rig.look_until(rig.now_s + 2)
    assert rig.watch.last_hold() != {}
    rig.look_until(rig.now_s + LIMIT_S + 3)
    assert rig.group.left == 2


def test_one_that_never_comes_back_ends_the_process() -> None:
    rig = Rig()
    assert rig.look_until(2 * LIMIT_S)
    assert not rig.look_until(2 * LIMIT_S + 5)
    assert rig.group.left == 1


def test_a_record_that_has_just_come_into_hand_is_not_to_blame() -> None:
    """A chunk of records of which none takes too long: the one that is there at the end is innocent."""
    rig = Rig()
    rig.in_hand = lambda now_s: record(int(now_s) // 2)
    rig.look_until(LIMIT_S + 3)
    assert rig.group.left == 1
    (noted,) = msgspec.json.decode(rig.notes.data)
    assert (noted["offset"], noted["count"]) == (5, 0)


def test_a_timer_is_not_to_blame_for_others_of_the_same_time() -> None:
    """The windows of all keys end together."""
    rig = Rig()
    rig.in_hand = lambda now_s: Whereabouts(
        "step", task=TaskId("stage", 0), store="sums", timer=StoredTimer(b"%d" % (now_s // 2), 60_000, b"")
    )
    rig.look_until(LIMIT_S + 3)
    assert rig.group.left == 1
    (noted,) = msgspec.json.decode(rig.notes.data)
    assert noted["count"] == 0


def test_what_held_the_loop_last_is_remembered_for_the_log() -> None:
    rig = Rig()
    rig.look_until(4)
    assert rig.watch.last_hold()["step"] == "step"
    rig.watch.answer()
    rig.look_until(rig.now_s + rig.watch.look_s)
    assert rig.watch.last_hold()["in_hand"] == "words[0]@3"
    for _ in range(3):
        rig.watch.answer()
        rig.look_until(rig.now_s + rig.watch.look_s)
    assert rig.watch.last_hold() == {}


def test_the_thread_finds_the_step_that_blocks_the_loop() -> None:
    rig = Rig(limit_s=0.5)
    pipeline = sk.pipeline("blocked")
    released = threading.Event()

    def block(word: str) -> int:
        released.wait(20)
        return len(word)

    pipeline.read(WORDS).map(block).write(LENGTHS)

    async def main() -> None:
        with watching(rig.watch, released.set):
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, time.sleep, 1.0)  # a loop that waits is not held
            assert rig.group.left == 0
            run_blocking(pipeline)

    with capture_logs() as logs:
        asyncio.run(main())
    assert rig.group.left == 1
    told = [entry for entry in logs if entry["log_level"] == "error"]
    assert [(entry["step"], entry["in_hand"]) for entry in told] == [("block", "words[0]@0")] * 2
    assert not [thread for thread in threading.enumerate() if thread.name == "streamkit-watch"]


def run_blocking(pipeline: sk.Pipeline) -> None:
    """Run the code of a pipeline inside of a running loop, which a harness cannot."""
    (stage,) = pipeline.plan().stages
    at = TopicPartition(WORDS.name, 0)
    task = Task(TaskId(stage.name, 0), stage, {at: stage.inputs[0]})
    task.life = Life.RESTORING
    state = TaskState(MemoryStores().open("task"), stage.stores)
    task.start(Restored(state, {at: 0}, 0, "birth"), {LENGTHS.name: writing_to([])})
    records = [SimpleNamespace(offset=0, timestamp=0, key=None, value=b"word", headers=[])]
    failures: Any = None  # none fails
    FetchedIntake(task, FetchedBatch(at, records, 0, 1, 4)).run_slice(10, failures)
    assert task.positions[at] == 1


def slow(seconds: dict[str, float], ran: list[str]) -> sk.Pipeline:
    def work(word: str) -> int:
        ran.append(word)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.spend(seconds.get(word, 0.01), whereabouts(sys._getframe()))
        return len(word)

    pipeline = sk.pipeline("slow")
    pipeline.read(WORDS).map(work, name="work").write(LENGTHS)
    return pipeline


def watch_over(harness: Harness, ended: list[bool]) -> None:
    """What the thread does in life."""
    worker = harness.workers[0]
    assert worker.loop is not None

    over = harness._loop.create_task(watched(worker.loop.watch, worker.name), context=in_process(None))
    over.add_done_callback(lambda task: ended.append(not task.cancelled()))


def test_a_record_that_outlasts_the_limit_ends_as_a_dead_letter_and_the_others_are_processed() -> None:
    ran: list[str] = []
    with (
        capture_logs() as logs,
        Harness(slow({"stuck": 1.5 * LIMIT_S}, ran), partitions=1, processing_max_s=LIMIT_S) as harness,
    ):
        watch_over(harness, [])
        harness.send(WORDS, *["fine"] * 20, "stuck", *["good"] * 20)
        harness.run()
        assert len(harness.read(LENGTHS)) == 40
        (letter,) = harness.dead_letters()
        assert letter.value == b"stuck"
    assert ran.count("stuck") == 2
    lost = [
        entry
        for entry in logs
        if entry["event"] == "the broker refused us as a former owner: joining the group again"
    ]
    assert [(entry["step"], entry["in_hand"]) for entry in lost] == [("work", "words[0]@20")] * 2


def test_slow_records_within_the_limit_keep_their_place() -> None:
    ran: list[str] = []
    with Harness(
        slow({"slow": 0.9 * LIMIT_S}, ran), partitions=1, processing_max_s=LIMIT_S, session_timeout_s=1.0
    ) as harness:
        watch_over(harness, [])
        harness.send(WORDS, *["slow"] * 5)
        harness.run()
        assert len(harness.read(LENGTHS)) == 5
    assert ran == ["slow"] * 5


def test_a_record_that_never_returns_ends_the_process() -> None:
    ended: list[bool] = []
    with Harness(slow({"stuck": 1000.0}, []), partitions=1, processing_max_s=LIMIT_S) as harness:
        watch_over(harness, ended)
        harness.send(WORDS, "stuck")
        harness.advance(3 * LIMIT_S)
        assert ended == [True]


def test_a_record_that_was_handed_over_is_found_by_its_place_in_the_topic() -> None:
    ran: list[str] = []

    def work(word: str) -> int:
        ran.append(word)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.spend(1.5 * LIMIT_S if word == "stuck" else 0.01, whereabouts(sys._getframe()))
        return len(word)

    pipeline = sk.pipeline("slow")
    pipeline.read(WORDS).key_by(lambda word: word).map(work).write(LENGTHS)
    with Harness(pipeline, partitions=1, processing_max_s=LIMIT_S) as harness:
        harness.run()
        watch_over(harness, [])
        assert harness.workers[0].loop is not None
        assert harness.workers[0].loop.local.partitions == 1
        harness.send(WORDS, "fine", "stuck", "good")
        harness.run()
        assert sorted(harness.read(LENGTHS)) == [4, 4]
        (letter,) = harness.dead_letters()
        assert letter.value == internal_codec(str).encode("stuck")
    assert ran.count("stuck") == 3  # once by memory, twice by its topic


@pytest.mark.parametrize("policy", [sk.dead_letter(), sk.skip()])
def test_a_timer_that_outlasts_the_limit_is_set_aside(policy: Any) -> None:
    fired: list[int] = []
    times = sk.topic("times", int, time=lambda value: value)

    class Stuck(sk.Operator[str, int, int]):
        def on_record(self, value: int, ctx: sk.Context[str, int]) -> None:
            ctx.set_timer(value)

        def on_timer(self, timer: sk.Timer, ctx: sk.Context[str, int]) -> None:
            fired.append(timer.time)
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            loop.spend(1.5 * LIMIT_S if timer.time == 1001 else 0.01, whereabouts(sys._getframe()))
            ctx.emit(timer.time)

    pipeline = sk.pipeline("slow-timers", on_error=policy)
    pipeline.read(times).key_by(lambda _: "k").process(Stuck(), name="stuck").write(LENGTHS)
    with Harness(pipeline, partitions=1, processing_max_s=LIMIT_S) as harness:
        watch_over(harness, [])
        harness.send(times, 1000, 1001, 1002)
        harness.run()
        harness.send(times, 90_000)
        harness.run()
        assert harness.read(LENGTHS) == [1000, 1002]
        assert len(harness.dead_letters()) == (1 if policy.action == "dead_letter" else 0)
    assert fired.count(1001) == 2
