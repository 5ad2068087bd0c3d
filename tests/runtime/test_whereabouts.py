"""What a worker's code is doing is read off its frames, from outside."""

import sys
from collections.abc import Callable

import streamkit as sk
from streamkit.model.event_time import WatermarkGenerator
from streamkit.model.ids import TaskId, TopicPartition
from streamkit.runtime.whereabouts import Whereabouts, whereabouts
from streamkit.testing import Harness

WORDS = sk.topic("words", str)
TIMES = sk.topic("times", int, time=lambda value: value)
LENGTHS = sk.topic("lengths", int)


def looking(seen: list[Whereabouts | None]) -> Callable[[str], int]:
    def measure(word: str) -> int:
        seen.append(whereabouts(sys._getframe()))
        return len(word)

    return measure


def test_the_step_and_the_place_of_the_record_in_hand() -> None:
    seen: list[Whereabouts | None] = []
    pipeline = sk.pipeline("looked-at")
    pipeline.read(WORDS).filter(bool).map(looking(seen), name="measured").write(LENGTHS)
    with Harness(pipeline, partitions=1) as harness:
        harness.send(WORDS, "a", "bb", "ccc")
        harness.run()
    found = seen[2]
    assert found is not None
    assert (found.step, found.partition, found.offset) == ("measured", TopicPartition("words", 0), 2)
    assert found.in_hand == "words[0]@2"
    assert "test_whereabouts.py" in found.line


def test_a_record_that_was_handed_over_has_no_place() -> None:
    seen: list[Whereabouts | None] = []
    pipeline = sk.pipeline("handed")
    pipeline.read(WORDS).key_by(lambda word: word, name="by_word").map(looking(seen)).write(LENGTHS)
    with Harness(pipeline, partitions=1) as harness:
        harness.run()
        harness.send(WORDS, "a")
        harness.run()
    (found,) = seen
    assert found is not None
    assert found.step == "measure"
    assert found.offset == -1
    assert found.in_hand == f"a record handed over to {found.partition}"


class Waking(sk.Operator[str, int, int]):
    def __init__(self, seen: list[Whereabouts | None]) -> None:
        self.seen = seen

    def on_record(self, value: int, ctx: sk.Context[str, int]) -> None:
        ctx.set_timer(value + 5)

    def on_timer(self, timer: sk.Timer, ctx: sk.Context[str, int]) -> None:
        self.seen.append(whereabouts(sys._getframe()))
        ctx.emit(timer.time)


def test_the_timer_in_hand_and_not_the_record_that_made_it_due() -> None:
    seen: list[Whereabouts | None] = []
    pipeline = sk.pipeline("timed")
    waking = pipeline.read(TIMES).key_by(lambda _: "k").process(Waking(seen), name="waking")
    waking.write(LENGTHS)
    with Harness(pipeline, partitions=1) as harness:
        harness.send(TIMES, 1000)
        harness.run()
        harness.send(TIMES, 5000, 9000)
        harness.run()
    found = seen[0]
    assert found is not None
    assert found.step == "waking"
    assert found.timer is not None
    assert found.timer.time == 1005
    assert found.task == TaskId(found.task.stage if found.task else "", 0)
    assert found.in_hand.startswith("a timer of task")


def test_the_held_back_result_in_hand_by_its_key_and_the_step_that_held_it() -> None:
    seen: list[Whereabouts | None] = []

    def publish(_key: str, count: int) -> int:
        seen.append(whereabouts(sys._getframe()))
        return count

    pipeline = sk.pipeline("held")
    counts = pipeline.read(WORDS).key_by(lambda word: word).count(name="n", updates="latest")
    counts.map_keyed(publish).write(LENGTHS)
    with Harness(pipeline, partitions=1, workers=0) as harness:
        harness.send(WORDS, "a", "b", "a")
        harness.scale(1)
        harness.run()
    assert [(each.step, each.held_by, each.key) for each in seen if each is not None] == [
        ("publish", "n", b"a"),
        ("publish", "n", b"b"),
    ]
    assert seen[0] is not None
    assert seen[0].in_hand == f"the result of key b'a' that task {seen[0].task} held back"


class Looking(WatermarkGenerator):
    """Looks where it is whenever it is called."""

    def on_record(self, value: str, timestamp: int) -> int | None:  # noqa: ARG002
        SEEN.append(("record " + value, whereabouts(sys._getframe())))
        return None

    def on_tick(self, now_ms: int) -> int | None:  # noqa: ARG002
        SEEN.append(("tick", whereabouts(sys._getframe())))
        return None


SEEN: list[tuple[str, Whereabouts | None]] = []
OPENED: list[Whereabouts | None] = []


def test_the_record_that_a_watermark_generator_sees_and_not_the_next_one() -> None:
    SEEN.clear()
    words = sk.topic("words", str, late=Looking)
    pipeline = sk.pipeline("promised")
    pipeline.read(words).key_by(lambda word: word).process(Waiting()).write(LENGTHS)
    with Harness(pipeline, partitions=1) as harness:
        harness.send(words, "a", "b", "c")
        harness.run()
        harness.advance(1)
    found = {what: where for what, where in SEEN if where is not None}
    assert len(found) == 4
    places = {what: (where.step, where.offset, where.in_hand) for what, where in found.items()}
    assert places == {
        "record a": ("watermarks", 0, "words[0]@0"),
        "record b": ("watermarks", 1, "words[0]@1"),
        "record c": ("watermarks", 2, "words[0]@2"),
        "tick": ("watermarks", -1, "no record"),
    }
    assert not found["tick"].has_something


class Waiting(sk.Operator[str, str, int]):
    """Has a use for time, and looks where it is when it is opened."""

    def open(self, ctx: sk.Context[str, int]) -> None:  # noqa: ARG002
        OPENED.append(whereabouts(sys._getframe()))

    def on_record(self, value: str, ctx: sk.Context[str, int]) -> None:  # noqa: ARG002
        ctx.set_timer(10)

    def on_timer(self, timer: sk.Timer, ctx: sk.Context[str, int]) -> None: ...


def test_the_step_whose_open_is_called() -> None:
    OPENED.clear()
    pipeline = sk.pipeline("opened")
    pipeline.read(WORDS).key_by(lambda word: word).process(Waiting(), name="waiting").write(LENGTHS)
    with Harness(pipeline, partitions=1):
        pass
    found = OPENED[-1]
    assert found is not None
    assert (found.step, found.in_hand, found.has_something) == ("waiting", "no record", False)
    assert found.task is not None


def test_outside_of_a_pipeline_there_is_nothing_in_hand() -> None:
    assert whereabouts(sys._getframe()) is None
    assert whereabouts(None) is None
