"""What user code may raise: whatever it is, its record is set aside, and the right step is named."""

import asyncio
import traceback
from typing import Any

import msgspec
import pytest

import streamkit as sk
from streamkit.errors import (
    Bug,
    EncodeError,
    Fenced,
    Misconfigured,
    Retry,
    StateCorrupt,
    StreamkitError,
    is_of_the_record,
    said,
)
from streamkit.kafka.ports import WriterOptions
from streamkit.model.commit import Guarantee
from streamkit.model.ids import TaskId, TopicPartition
from streamkit.runtime.local import HandedRecord
from streamkit.state.changelog import CommitRecord
from streamkit.task.emit import Lane
from streamkit.task.letters import Letters, reason_of
from streamkit.task.limits import TopicLimits
from streamkit.testing import Harness
from streamkit.testing.memory import MemoryBroker, MemoryLog
from tests.runtime.pages import COUNTS, VIEWS, Count, View, as_count, page_of

VIEWS_OUT = sk.topic("views_out", View)


class Mute(Exception):
    """Has nothing to say for itself."""

    def __str__(self) -> str:
        raise RuntimeError("nothing")

    __repr__ = __str__


class Exiting(Exception):
    """Ends the program when it is asked what it says."""

    def __str__(self) -> str:
        raise SystemExit(3)


class Proud(Exception):
    """Ends the program when it is asked for anything."""

    def __getattr__(self, name: str) -> Any:
        raise SystemExit(name)


RAISED = {
    "surrogate": ValueError("\ud800"),
    "mute": Mute(),
    "exiting": Exiting(),
    "proud": Proud(),
    "long": ValueError("x" * 5_000_000),
    "wide": ValueError("\U0001f600" * 100_000),
    "exit": SystemExit(1),
    "generator": GeneratorExit(),
    "cancelled": asyncio.CancelledError(),
    "group": ExceptionGroup("two", [ValueError("\ud800"), Mute()]),
    "deep": RecursionError(),
    # Ours, but raised by somebody else.
    "retry": Retry("mine"),
    "bug": Bug("mine"),
    "fenced": Fenced("mine"),
    "corrupt": StateCorrupt("mine"),
    "misconfigured": Misconfigured("mine"),
}


def raising(what: str) -> Any:
    if what == "deep":
        return raising(what)
    raise RAISED[what]


class Raising(sk.Operator[str, View, Count]):
    """Raises in its records, before or after it has changed something."""

    views = sk.value(int, 0)

    def on_record(self, value: View, ctx: sk.Context[str, Count]) -> None:
        self.views.set(self.views.get() + 1)
        ctx.emit(Count(value.page, self.views.get()))
        if value.user in RAISED:
            raising(value.user)


@pytest.mark.parametrize("what", RAISED)
@pytest.mark.parametrize("where", ["clean", "process", "held"])
def test_nothing_that_user_code_raises_ends_the_worker(what, where):
    def refuse(view: View) -> View:
        if view.user in RAISED:
            raising(view.user)
        return view

    def refuse_result(page: str, views: int) -> Count:
        if page == "bad":
            raising(what)
        return Count(page, views)

    pipeline = sk.pipeline("raising")
    stream = pipeline.read(VIEWS)
    if where == "clean":
        stream.map(refuse).key_by(page_of).count(name="n").map_keyed(as_count).write(COUNTS)
    elif where == "process":
        stream.key_by(page_of).process(Raising(), name="raising").write(COUNTS)
    else:
        stream.key_by(page_of).count(name="n", updates="latest").map_keyed(refuse_result).write(COUNTS)
    with Harness(pipeline, partitions=1) as harness:
        harness.send(VIEWS, View("a"), View("bad", what), View("a"))
        harness.run()
        harness.send(VIEWS, View("a"))
        harness.run()
        assert {count.page: count.views for count in harness.read(COUNTS)} == {"a": 3}
        (letter,) = harness.dead_letters()
        told = letter.headers["streamkit.error"] or b""
        assert type(RAISED[what]).__name__.encode() in told or told == b"mine"
        assert len(letter.headers["streamkit.traceback"] or b"") < 20_000


def test_an_error_that_is_raised_again_and_again_does_not_collect_its_tracebacks():
    error = ValueError("always me")

    def refuse(view: View) -> View:
        raise error

    pipeline = sk.pipeline("again")
    pipeline.read(VIEWS).map(refuse).write(VIEWS_OUT)
    with Harness(pipeline, partitions=1) as harness:
        harness.send(VIEWS, *[View("a")] * 20)
        harness.run()
        texts = {letter.headers["streamkit.traceback"] for letter in harness.dead_letters()}
        assert len(texts) == 1
        assert error.__traceback__ is None


@pytest.mark.parametrize(("bytes_max", "key"), [(5_000, b"k"), (900, None)])
def test_a_dead_letter_topic_that_takes_little_gets_short_letters(bytes_max, key):
    writer = MemoryLog(MemoryBroker()).writer(WriterOptions("w", Guarantee.EXACTLY_ONCE))
    lane = Lane("letters", 1, writer, TopicLimits(record_bytes_max=bytes_max))
    record = HandedRecord(7, b"k", b"x" * 6_000, [("h" * 900, b"x" * 900)], 3)
    reason = reason_of("mine", ValueError("y" * 500))
    Letters(lane).of_record(TaskId("views", 0), TopicPartition("views", 0), record, reason)
    (out,) = lane.take()
    ((_, *got, carried),) = out.batch.drafts
    headers = dict(carried)
    assert got == [key, None]
    assert headers["streamkit.offset"] == b"3"
    assert headers["streamkit.too-large"] == b"6001"
    assert headers["streamkit.error"].startswith(b"ValueError: yyy")


def test_a_dead_letter_topic_that_takes_nothing_is_told_to_a_person():
    writer = MemoryLog(MemoryBroker()).writer(WriterOptions("w", Guarantee.EXACTLY_ONCE))
    letters = Letters(Lane("letters", 1, writer, TopicLimits(record_bytes_max=300)))
    with pytest.raises(Misconfigured, match="takes no record"):
        letters.of_result(TaskId("views", 0), b"k", object(), 7, reason_of("mine", ValueError("no")))


class Unopened(Raising):
    """Raises before there is any record."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def open(self, ctx: sk.Context[str, Count]) -> None:  # noqa: ARG002 - it does not come to that
        raise self.error


@pytest.mark.parametrize("error", [ValueError("no licence"), SystemExit(2), Retry("no licence"), Bug("mine")])
def test_an_open_that_raises_ends_the_worker_with_a_clear_error(error):
    pipeline = sk.pipeline("unopened")
    pipeline.read(VIEWS).key_by(page_of).process(Unopened(error), name="unopened").write(COUNTS)
    with pytest.raises(Misconfigured, match='step "unopened" cannot be started') as raised:
        Harness(pipeline, partitions=1).run()
    assert said(error) in raised.value.detail
    assert "test_raised.py" in raised.value.where


def test_an_error_of_ours_is_ours_only_where_we_raised_it():
    def of(action: Any) -> bool:
        try:
            action()
        except StreamkitError as error:
            return is_of_the_record(error)
        raise AssertionError

    seen: list[Misconfigured] = []

    def caught_and_raised_again() -> None:
        try:
            CommitRecord.decode(b"garbage")
        except Misconfigured as error:
            seen.append(error)
            raise

    assert of(lambda: raising("bug"))
    assert of(lambda: sk.topic("not a name", View))
    assert not of(lambda: CommitRecord.decode(b"garbage"))
    assert not of(caught_and_raised_again)


# -- who failed --------------------------------------------------------------------------------------------------------------


__steps__ = dict.fromkeys(range(1000), "forged")  # as generated functions have them


def push(view: View, step: str = "forged") -> View:
    """A user's function that is called as our own are, with a variable that is called as theirs."""
    if view.user == "bad":
        raise ValueError(step)
    return view


class Fire(sk.Operator[str, View, View]):
    """The same in an operator."""

    seen = sk.value(int, 0)

    def on_record(self, value: View, ctx: sk.Context[str, View]) -> None:
        def fire(step: str) -> None:
            self.seen.set(self.seen.get() + 1)
            if value.user == "bad":
                raise ValueError(step)

        fire("decode")
        ctx.emit(View(value.page, str(self.seen.get())))


def test_a_users_function_is_not_taken_for_a_step():
    pipeline = sk.pipeline("forged")
    pipeline.read_keyed(VIEWS).map(push, name="mine").process(Fire(), name="fires").write(VIEWS_OUT)
    with Harness(pipeline, partitions=1) as harness:
        harness.send(VIEWS, View("a"), View("a", "bad"), View("a"), key="a")
        harness.run()
        (letter,) = harness.dead_letters()
        assert letter.headers["streamkit.step"] == b"mine"
    pipeline = sk.pipeline("forged")
    pipeline.read_keyed(VIEWS).process(Fire(), name="fires").write(VIEWS_OUT)
    with Harness(pipeline, partitions=1) as harness:
        harness.send(VIEWS, View("a"), View("a", "bad"), View("a"), key="a")
        harness.run()
        (letter,) = harness.dead_letters()
        assert letter.headers["streamkit.step"] == b"fires"
        assert [view.user for view in harness.read(VIEWS_OUT)] == ["1", "2"]


class Bag(msgspec.Struct):
    """A value that a reduce works on in place."""

    items: list[str]


def test_a_reduce_that_works_in_place_and_raises_leaves_no_trace():
    bags, out = sk.topic("bags", Bag), sk.topic("bags_out", Bag)

    def collect(known: Bag, more: Bag) -> Bag:
        known.items += more.items
        if "bad" in more.items:
            raise ValueError("no bad ones")
        return known

    pipeline = sk.pipeline("bags")
    pipeline.read_keyed(bags).reduce(collect, name="bags").write(out)
    with Harness(pipeline, partitions=1) as harness:
        harness.send(bags, Bag(["a"]), Bag(["bad"]), Bag(["b"]), key="k")
        harness.run()
        assert harness.read(out)[-1] == Bag(["a", "b"])
        assert len(harness.dead_letters()) == 1


class OfOurs(Exception):
    """Has a module."""


def noted() -> ValueError:
    error = ValueError("a")
    error.add_note("and a note")
    return error


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        ValueError(),
        KeyError("k"),
        OfOurs("two\nlines"),
        EncodeError("too large", hint="write less"),
        noted(),
        SyntaxError("bad", ("file", 1, 2, "text")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_letter_shows_an_error_as_python_does(error: Exception) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        fail()
    expected = "".join(traceback.format_exception(caught.value))
    assert reason_of("step", caught.value).traceback == expected
