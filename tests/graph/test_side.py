"""Side outputs: values of a second type, from an operator or a window process, as a stream of their own."""

from typing import Any

import pytest

import streamkit as sk
from streamkit.errors import InvalidPipeline
from streamkit.graph.describe import as_text
from streamkit.graph.pipeline import Pipeline
from streamkit.testing import Harness

ODD, LONG = sk.side("odd", int), sk.side("long", str)
words = sk.topic("words", str)
shouted, odd, long = sk.topic("shouted", str), sk.topic("odd", int), sk.topic("long", str)


class Shout(sk.Operator[str, str, str]):
    sides = (ODD, LONG)

    def on_record(self, value: str, ctx: sk.Context[str, str]) -> None:
        ctx.emit(value.upper())
        if len(value) % 2:
            ctx.emit_to(ODD, len(value))
        if len(value) > 3:
            ctx.emit_to(LONG, value, timestamp=ctx.timestamp + 1)


class Alarm(sk.Operator[str, str, str]):
    sides = (ODD,)

    def on_record(self, value: str, ctx: sk.Context[str, str]) -> None:
        ctx.set_timer(ctx.timestamp + len(value))

    def on_timer(self, timer: sk.Timer, ctx: sk.Context[str, str]) -> None:
        ctx.emit_to(ODD, timer.time)


class Longest(sk.WindowProcess[str, str, str]):
    sides = (ODD,)

    def process(self, key: str, window: sk.Window, elements: list[str], ctx: sk.WindowContext[str]) -> None:  # noqa: ARG002
        ctx.emit(max(elements, key=len))
        ctx.emit_to(ODD, len(elements))


def of(operator: sk.Operator[Any, str, str]) -> tuple[Pipeline, sk.Keyed[Any, str]]:
    p = sk.pipeline("p")
    return p, p.read_keyed(words).process(operator, name="op")


def test_each_output_has_its_stream_with_the_key_and_the_time_of_the_record() -> None:
    p, results = of(Shout())
    results.write(shouted)
    results.side(ODD).map(lambda n: n * 10).write(odd)
    results.side(LONG).write(long)
    with Harness(p, partitions=1) as harness:
        harness.send(words, "one", "seven", "even", key="k", timestamp=50)
        harness.run()
        assert harness.read(shouted) == ["ONE", "SEVEN", "EVEN"]
        assert [(each.key, each.value, each.timestamp) for each in harness.records(odd)] == [
            ("k", 30, 50),
            ("k", 50, 50),
        ]
        assert [(each.key, each.value, each.timestamp) for each in harness.records(long)] == [
            ("k", "seven", 51),
            ("k", "even", 51),
        ]


def test_a_side_may_have_several_branches_or_none() -> None:
    p, results = of(Shout())
    results.write(shouted)
    results.side(LONG).write(long)
    results.side(LONG).key_by(len, key_type=int).count().write(odd)
    with Harness(p, partitions=1) as harness:
        harness.send(words, "one", "seven", key="k")
        harness.run()
        assert harness.read(shouted) == ["ONE", "SEVEN"]
        assert harness.read(long) == ["seven"]
        assert harness.read(odd) == [1]


def test_a_side_knows_the_type_of_its_values() -> None:
    p, results = of(Shout())
    counted = results.side(ODD)
    assert (counted._node.value_type, counted._node.key_type) == (int, str)
    counted.reduce(max).write(odd)  # state needs the type
    assert "odd: reduce" in as_text(p.plan())
    with pytest.raises(InvalidPipeline, match='topic "long" holds values of type str, the stream has int'):
        results.side(ODD).write(long)


def test_timers_send_to_sides_too() -> None:
    p, results = of(Alarm())
    results.side(ODD).write(odd)
    with Harness(p, partitions=1) as harness:
        harness.send(words, "seven", key="k", timestamp=100)
        harness.send(words, "a", key="k", timestamp=200)
        harness.run()
        assert harness.read(odd) == [105]


def test_a_window_process_has_sides_beside_its_late_records() -> None:
    p = sk.pipeline("p")
    windowed = p.read_keyed(words).window(sk.tumbling(sk.milliseconds(10)), late=long)
    results = windowed.process(Longest())
    results.write(shouted)
    results.side(ODD).write(odd)
    with Harness(p, partitions=1) as harness:
        for word, at in (("a", 1), ("bb", 2), ("ccc", 15), ("late", 3)):
            harness.send(words, word, key="k", timestamp=at)
            harness.run()
        assert harness.read(shouted) == ["bb"]
        assert [(each.value, each.timestamp) for each in harness.records(odd)] == [(2, 9)]
        assert harness.read(long) == ["late"]


def test_what_a_record_sent_to_a_side_is_taken_back_when_it_fails() -> None:
    class Failing(sk.Operator[str, str, str]):
        sides = (ODD,)

        def on_record(self, value: str, ctx: sk.Context[str, str]) -> None:
            ctx.emit_to(ODD, len(value))
            if value == "bad":
                raise ValueError(value)

    p, results = of(Failing())
    results.side(ODD).write(odd)
    with Harness(p, partitions=1) as harness:
        harness.send(words, "a", "bad", "good", key="k")
        harness.run()
        assert harness.read(odd) == [1, 4]
        assert len(harness.dead_letters()) == 1


def test_a_side_that_is_not_declared_is_refused_with_what_to_write() -> None:
    class Forgetful(sk.Operator[str, str, str]):
        def on_record(self, value: str, ctx: sk.Context[str, str]) -> None:  # noqa: ARG002
            ctx.emit_to(ODD, 1)

    p, results = of(Forgetful())
    results.write(shouted)
    with Harness(p, partitions=1) as harness:
        harness.send(words, "one", key="k")
        harness.run()
        (letter,) = harness.dead_letters()
    said = (letter.headers["streamkit.error"] or b"").decode()
    assert said.startswith('side output "odd" is not declared here; declared: none; hint: put it into')
    assert letter.headers["streamkit.step"] == b"op"


@pytest.mark.parametrize("stream", [lambda r: r.map(len), lambda r: r.side(LONG), lambda r: r.side(ODD)])
def test_a_stream_without_that_side_says_where_it_is(stream: Any) -> None:
    _, results = of(Shout())
    with pytest.raises(InvalidPipeline, match='what comes before has no side output "odd"') as caught:
        stream(results).side(ODD)
    assert "call side() on what process() returned" in str(caught.value)


def test_a_side_of_the_same_name_and_another_type_is_another() -> None:
    _, results = of(Shout())
    results.side(sk.side("odd", int))
    with pytest.raises(
        InvalidPipeline, match='of the name "odd" is declared with type int; this one has str'
    ):
        results.side(sk.side("odd", str))


@pytest.mark.parametrize(
    ("sides", "said"),
    [
        (ODD, '"Shout.sides" is a tuple of side outputs'),
        ([ODD], '"Shout.sides" is a tuple of side outputs'),
        (("odd",), '"Shout.sides" is a tuple of side outputs'),
        ((ODD, sk.side("odd", str)), 'two side outputs of "Shout" are named "odd"'),
        ((sk.side("main", str),), '"Shout" has more than one output "main"'),
    ],
)
def test_sides_that_are_none_are_refused_where_they_are_written(sides: Any, said: str) -> None:
    operator = Shout()
    operator.sides = sides
    with pytest.raises(InvalidPipeline, match=said):
        of(operator)


def test_late_is_a_port_that_windows_have_already() -> None:
    class Latest(Longest):
        sides = (sk.side("late", int),)

    windowed = sk.pipeline("p").read_keyed(words).window(sk.tumbling(sk.minutes(1)))
    with pytest.raises(InvalidPipeline, match='"Latest" has more than one output "late"'):
        windowed.process(Latest())
    of_operator = Shout()
    of_operator.sides = (sk.side("late", int),)
    of(of_operator)[1].side(sk.side("late", int))


def test_a_stream_without_a_key_says_that_a_side_needs_an_operator() -> None:
    with pytest.raises(InvalidPipeline, match="side needs a key: call key_by first"):
        sk.pipeline("p").read(words).side(ODD)  # type: ignore[attr-defined]
