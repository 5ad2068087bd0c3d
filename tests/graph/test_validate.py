from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from streamkit.errors import InvalidPipeline
from streamkit.graph.pipeline import Pipeline, pipeline
from streamkit.graph.policy import dead_letter
from streamkit.model.duration import seconds
from streamkit.model.topic import topic
from streamkit.operators.aggregators import Aggregator
from streamkit.operators.process import Context, Operator
from streamkit.state.views import value
from streamkit.windows.assigners import tumbling
from tests.graph.shop import Click, Dedup, by_number, by_page, clicks, counts, is_human, taps, totals, unique


class Named(Operator[str, Click, Click]):
    first = value(bool, False, name="same")
    second = value(bool, False, name="same")

    def on_record(self, value: Click, ctx: Context[str, Click]) -> None: ...


def two_counts(p: Pipeline) -> None:
    keyed = p.read(clicks).key_by(by_page)
    keyed.count().write(counts)
    keyed.filter(is_human).count().write(counts)


def two_shuffles(p: Pipeline) -> None:
    p.read(clicks).key_by(lambda click: click.page)
    p.read(clicks).key_by(lambda click: click.user)


def lost_type(p: Pipeline) -> None:
    p.read(clicks).map(lambda click: click.page).filter(bool).key_by(str)


def lost_type_in_reduce(p: Pipeline) -> None:
    p.read(clicks).key_by(by_page).map(lambda click: click.number, name="number").reduce(max)


def lost_type_in_union(p: Pipeline) -> None:
    other: Any = p.read(topic("numbers", int))
    p.read(clicks).union(other).key_by(str)


def back_into_the_source(p: Pipeline) -> None:
    p.read(clicks).filter(is_human).write(clicks)


def own_output(p: Pipeline) -> None:
    stream = p.read(clicks)
    stream.union(stream.key_by(by_page).process(Dedup())).write(unique)


def same_stage_name(p: Pipeline) -> None:
    p.read(topic("by_page", Click)).key_by(by_page).count().write(counts)


def two_types(p: Pipeline) -> None:
    p.read(clicks).write(unique)
    p.read(topic("clicks", dict)).peek(print)


def other_keys(p: Pipeline) -> None:
    two = p.read(taps).key_by(by_page, name="b")
    p.read(clicks).key_by(by_page, name="a").union(two)


def other_pipeline(p: Pipeline) -> None:
    p.read(clicks).union(pipeline("q").read(taps))


MISTAKES: list[tuple[Callable[[Pipeline], object], str, str]] = [
    (
        lambda _: None,
        'pipeline "p" reads nothing',
        "begin with pipeline.read(topic) or @pipeline.agent(topic)",
    ),
    (
        lambda p: p.read(clicks),
        'topic "clicks" is read, and its records go nowhere',
        "end the stream with write(topic), or with peek(fn) if only the effect counts",
    ),
    (
        lambda p: p.read(clicks).key_by(by_page).count(),
        'the results of step "count" go nowhere',
        "end the stream with write(topic), or with peek(fn) if only the effect counts",
    ),
    (
        lambda p: p.read(clicks).key_by(by_page),
        'the records of step "by_page" go nowhere',
        "end the stream with write(topic), or with peek(fn) if only the effect counts",
    ),
    (two_counts, 'two steps are named "count"', 'pass name="..." to one of them'),
    (two_shuffles, 'two steps are named "key_by"', 'pass name="..." to one of them'),
    (
        lost_type,
        'step "str" needs to know of which type its values are, and step "map" does not say',
        'annotate the return type of the function of "map", or pass to=Type there',
    ),
    (
        lost_type_in_reduce,
        'step "max" needs to know of which type its values are, and step "number" does not say',
        'annotate the return type of the function of "number", or pass to=Type there',
    ),
    (
        lost_type_in_union,
        'step "str" needs to know of which type its values are, and the united streams differ',
        "bring them to one type with map(fn, to=Type) before union()",
    ),
    (
        back_into_the_source,
        'topic "clicks" is read and written by the same pipeline',
        "write to another topic, or let a second pipeline read this one",
    ),
    (
        own_output,
        "a union joins records from before and after a shuffle, so a stage would read its own output",
        "write both streams to the topic, each with its own write(), or key both before the union",
    ),
    (same_stage_name, 'two stages are named "by_page"', 'pass name="..." to that key_by() or read()'),
    (
        two_types,
        'topic "clicks" is declared twice with different types',
        "declare the topic once and use that object everywhere",
    ),
    (
        other_keys,
        "a union of keyed streams needs all of them to come from the same key_by",
        "call union() before key_by(), or a.unkeyed().union(b) if the key no longer matters",
    ),
    (
        other_pipeline,
        "a union needs streams of the same pipeline",
        "let one pipeline write to a topic and the other read it",
    ),
    (
        lambda p: p.read(clicks).key_by(by_page, partitions=0),
        "a shuffle cannot have 0 partitions",
        "choose a count from 1 to 1024",
    ),
    (
        lambda p: p.read(clicks).write(totals),  # type: ignore[arg-type]
        'topic "page-totals" holds values of type PageCount, the stream has Click',
        "convert them with map() before write(), or declare the topic with the type you write",
    ),
    (
        lambda p: p.read(clicks).key_by(by_page).process(Dedup()).write(topic("u", Click, key=int)),
        'topic "u" has keys of type int, the stream has str',
        "pass key=... to write(), or declare the topic with key=str",
    ),
    (
        lambda p: p.read(clicks).key_by(by_page).process(Named()).write(unique),
        'two stores are named "same"',
        "give one of them another name; a store's name decides where its state lives",
    ),
    (
        lambda p: p.read(topic("cl icks", Click)).write(unique),
        "'cl icks' cannot be the name of a topic",
        'use letters, digits, ".", "-" and "_", for example topic("cl-icks", ...)',
    ),
    (
        lambda p: p.read(clicks).key_by(by_page, name="x" * 250).count().write(counts),
        'step "'
        + "x" * 250
        + '" makes the topic name "p.'
        + "x" * 250
        + '.shuffle.1", which Kafka does not take',
        'use letters, digits, ".", "-" and "_"; pass a short name="..." where a function has a long one or other letters',
    ),
    (
        lambda p: (p.read(clicks, name="a"), p.read(clicks, name="b")),
        'topic "clicks" is read under two names, "a" and "b"',
        'leave out name="b"',
    ),
    (
        lambda p: p.read_keyed(clicks, key_type=int),
        'topic "clicks" has keys of type str, not int',
        'declare it as topic("clicks", ..., key=int)',
    ),
    (
        lambda p: p.read(clicks).key_by(by_page).count(updates="last"),  # type: ignore[arg-type]
        'updates is "each" or "latest", got \'last\'',
        '"each" sends every new result on, "latest" only the last of each key and span',
    ),
]


@pytest.mark.parametrize(
    ("build", "problem", "hint"), MISTAKES, ids=[problem[:40] for _, problem, _ in MISTAKES]
)
def test_a_mistake_is_told_with_a_hint(build: Callable[[Pipeline], object], problem: str, hint: str) -> None:
    def planned() -> None:
        p = pipeline("p")
        build(p)
        p.plan()

    with pytest.raises(InvalidPipeline) as caught:
        planned()
    assert (caught.value.problem, caught.value.hint) == (problem, hint)


async def wait(_: Any, *_others: Any) -> str:
    return ""


async def wait_for_many(_: Any) -> Any:
    yield 1


class Waiting(Operator[str, Click, Click]):
    async def on_record(self, value: Click, ctx: Context[str, Click]) -> None:  # type: ignore[override]
        ...


class WaitingSum(Aggregator[Click, int, int]):
    def create(self) -> int:
        return 0

    async def add(self, accumulator: int, value: Click, /) -> int:  # type: ignore[override]
        ...

    def result(self, accumulator: int, /) -> int:
        return accumulator


class WaitingCall:
    async def __call__(self, _: Any) -> str:
        return ""


WAITING: dict[str, Callable[[Pipeline], object]] = {
    "map": lambda p: p.read(clicks).map(wait),
    "partial": lambda p: p.read(clicks).map(partial(wait, 1)),
    "object": lambda p: p.read(clicks).map(WaitingCall()),
    "filter": lambda p: p.read(clicks).filter(wait),
    "flat_map": lambda p: p.read(clicks).flat_map(wait_for_many),
    "peek": lambda p: p.read(clicks).peek(wait),
    "key_by": lambda p: p.read(clicks).key_by(wait),
    "map_keyed": lambda p: p.read_keyed(clicks).map_keyed(wait),
    "reduce": lambda p: p.read_keyed(clicks).reduce(wait),
    "sum": lambda p: p.read_keyed(clicks).sum(wait),
    "aggregate": lambda p: p.read_keyed(clicks).aggregate(WaitingSum()),
    "process": lambda p: p.read_keyed(clicks).process(Waiting()),
    "write": lambda p: p.read(clicks).write(unique, key=wait),
    "window": lambda p: p.read_keyed(clicks).window(tumbling(seconds(1))).count(into=wait),
    "time": lambda p: p.read(topic("c", Click, time=wait)),
}


@pytest.mark.parametrize("where", WAITING)
def test_a_step_that_would_wait_is_refused_where_it_is_written(where: str) -> None:
    with pytest.raises(InvalidPipeline, match="an async def, and a step cannot wait"):
        WAITING[where](pipeline("p"))


def test_an_agent_may_be_an_async_def() -> None:
    p = pipeline("p")

    @p.agent(clicks)
    async def look(click: Click, ctx: Context[str, Click]) -> None: ...

    assert p.plan().stages


@pytest.mark.parametrize("name", ["", ".", "cl/icks", "clicks!", "x" * 250, None])
def test_a_topic_that_kafka_would_refuse_is_refused_where_it_is_declared(name: Any) -> None:
    with pytest.raises(InvalidPipeline, match="cannot be the name of a topic"):
        topic(name, Click)


@pytest.mark.parametrize(
    "name", ["count", "sum", "min", "max", "reduce", "aggregate", "process", "map_keyed"]
)
def test_what_needs_a_key_says_so(name: str) -> None:
    stream = pipeline("p").read(clicks)
    with pytest.raises(InvalidPipeline) as caught:
        getattr(stream, name)
    assert caught.value.problem == f"{name} needs a key: call key_by first"
    assert caught.value.hint == f"stream.key_by(lambda value: ...).{name}(...)"


def test_other_attributes_are_missing_as_usual() -> None:
    assert not hasattr(pipeline("p").read(clicks), "windowed")
    assert not hasattr(pipeline("p").read(clicks), "unkeyed")


@pytest.mark.parametrize("name", ["", "a.b", "a b", "é"])
def test_a_pipeline_name_begins_the_names_of_topics(name: str) -> None:
    with pytest.raises(InvalidPipeline, match="has characters that it may not have"):
        pipeline(name)


def test_an_error_policy_has_sensible_numbers() -> None:
    with pytest.raises(
        InvalidPipeline, match="an error policy needs retries and delay_s of 0 or more, got -1"
    ):
        dead_letter(retries=-1)


def test_a_branch_may_end_in_peek_and_process() -> None:
    p = pipeline("p")
    p.read(clicks).peek(print)
    p.read(clicks).key_by(by_page).process(Dedup())
    assert len(p.plan().stages) == 2


def test_keys_go_out_as_they_are_where_readers_can_read_them() -> None:
    p = pipeline("p")
    p.read(clicks).key_by(by_number).count().write(topic("text-keys", int))
    p.read(taps).key_by(by_page, name="b").count(name="c").write(topic("raw-keys", int, key=bytes))
    p.read(taps).write(topic("new-keys", Click, key=int), key=by_number)
    assert len(p.plan().stages) == 4


def test_a_tagged_child_may_be_written_where_its_parent_is_declared() -> None:
    class Special(Click):
        pass

    p = pipeline("p")
    p.read(clicks).map(lambda click: Special(click.user, click.page), to=Special).write(unique)  # type: ignore[arg-type]
    p.read(taps).map(lambda _: None, to=type(None)).write(topic("maybe", Click | None))  # type: ignore[arg-type]
    assert p.plan().sinks() == ("unique", "maybe")
    assert issubclass(Special, msgspec.Struct)


@pytest.mark.parametrize(
    "build",
    [
        lambda: pipeline("p").read("orders"),  # type: ignore[arg-type]
        lambda: pipeline("p").read(topic("orders", str)).write("sums"),  # type: ignore[arg-type]
        lambda: pipeline("p", on_error="skip"),  # type: ignore[arg-type]
        lambda: pipeline("p", on_error=dead_letter),  # type: ignore[arg-type]
    ],
)
def test_a_name_in_the_place_of_a_thing_is_refused_with_what_to_write(build) -> None:
    with pytest.raises(InvalidPipeline, match=r"hint: (declare it|write sk\.dead_letter)"):
        build()


def test_results_may_not_go_among_the_dead_letters_nor_be_made_of_them() -> None:
    letters = topic("p.dead-letters", Click)
    writing, reading = pipeline("p"), pipeline("p")
    writing.read(clicks).write(letters)
    reading.read(letters).peek(print)
    for each in (writing, reading):
        with pytest.raises(InvalidPipeline, match="keeps its dead letters"):
            each.plan()


def test_two_steps_of_one_name_are_told_with_the_lines_of_both() -> None:
    with pytest.raises(InvalidPipeline) as raised:
        two_shuffles(pipeline("p"))
    first = two_shuffles.__code__.co_firstlineno + 1
    file = "tests/graph/test_validate.py"
    assert raised.value.where == f"{file}, line {first + 1}; the other one: {file}, line {first}"
