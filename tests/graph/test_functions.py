"""What a step is given is looked at where the step is written: functions, their parameters, and the types of values."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

import streamkit as sk
from streamkit.errors import InvalidPipeline


class Payment(msgspec.Struct):
    card: str
    amount: float
    at: int

    def rounded(self) -> int:
        return round(self.amount)


class Refund(Payment):
    reason: str = ""


class Alert(msgspec.Struct):
    text: str


payments, alerts = sk.topic("payments", Payment), sk.topic("alerts", Alert)
texts, numbers = sk.topic("texts", str), sk.topic("numbers", int)
MINUTE = sk.tumbling(sk.minutes(1))

Stream = sk.Stream[Any]
Keyed = sk.Keyed[Any, Any]


def stream() -> Stream:
    return sk.pipeline("p").read(payments)


def keyed() -> Keyed:
    return stream().key_by(lambda value: value.card)


def windowed() -> Any:
    return keyed().window(MINUTE)


def refused(write: Callable[[], object], *said: str) -> None:
    with pytest.raises(InvalidPipeline) as caught:
        write()
    assert all(part in str(caught.value) for part in said), caught.value
    assert caught.value.where == ""  # whoever loads the module says which line of the user's it was


class Plain(sk.Operator[str, Payment, Payment]):
    def on_record(self, value: Payment, ctx: sk.Context[str, Payment]) -> None: ...


class ForAlerts(sk.Operator[str, Alert, Alert]):
    def on_record(self, value: Alert, ctx: sk.Context[str, Alert]) -> None: ...


class Yielding(sk.Operator[str, Payment, Payment]):
    def on_record(self, value: Payment, ctx: sk.Context[str, Payment]) -> Iterator[Payment]:  # type: ignore[override]  # noqa: ARG002
        yield value


class YieldingTimer(Plain):
    def on_timer(self, timer: sk.Timer, ctx: sk.Context[str, Payment]) -> Iterator[int]:  # type: ignore[override]  # noqa: ARG002
        yield timer.time


class NoContext(sk.Operator[str, Payment, Payment]):
    def on_record(self, value: Payment) -> None: ...  # type: ignore[override]


class NoTimer(Plain):
    def on_timer(self, ctx: sk.Context[str, Payment]) -> None: ...  # type: ignore[override]


class Ranking(sk.WindowProcess[str, Alert, str]):
    def process(
        self, key: str, window: sk.Window, elements: list[Alert], ctx: sk.WindowContext[str]
    ) -> None: ...


class Adding(sk.Aggregator[Payment, float, float]):
    def create(self) -> float:
        return 0.0

    def add(self, accumulator: float) -> float:  # type: ignore[override]
        return accumulator

    def result(self, accumulator: float, /) -> float:
        return accumulator


class Texts(sk.Aggregator[Alert, str, str]):
    def create(self) -> str:
        return ""

    def add(self, accumulator: str, value: Alert, /) -> str:
        return accumulator + value.text

    def result(self, accumulator: str, /) -> str:
        return accumulator


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda: stream().map("card"), ("map() takes a function, got the str 'card'", "lambda value: value.card")),
        (lambda: stream().map(None), ("map() takes a function, got None", "write lambda value:")),
        (lambda: stream().filter("x y"), ("filter() takes a function", "hint: write lambda value:")),
        (lambda: stream().flat_map(5), ("flat_map() takes a function, got the int 5",)),
        (lambda: stream().peek(payments), ("peek() takes a function, got a Topic",)),
        (lambda: stream().key_by("card"), ("key_by() takes a function", "write lambda value: value.card")),
        (lambda: stream().write(payments, key="card"), ("write(key=...) takes a function",)),
        (lambda: keyed().map_keyed("card"), ("map_keyed() takes", "write lambda key, value: value.card")),
        (lambda: keyed().reduce("card"), ("reduce() takes a function", "write lambda so_far, value: value.card")),
        (lambda: keyed().sum("amount"), ("sum() takes a function", "write lambda value: value.amount")),
        (lambda: keyed().min("amount"), ("min() takes a function",)),
        (lambda: keyed().max("amount"), ("max() takes a function",)),
        (lambda: windowed().sum("amount"), ("sum() takes a function",)),
        (lambda: windowed().reduce("amount"), ("reduce() takes a function",)),
        (lambda: windowed().count(into="x"), ("into takes a function, got the str 'x'", "lambda key, window, result")),
    ],
)  # fmt: skip
def test_what_is_no_function_is_refused(write: Callable[[], object], said: tuple[str, ...]) -> None:
    refused(write, *said)


def two(first: Any, second: Any) -> Any:
    return first, second


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (
            lambda: stream().map(two),
            ("the function of map() is called with (value), and the function two takes (first, second)",),
        ),
        (lambda: stream().filter(lambda: True), ("of filter() is called with (value), and a lambda takes ()",)),
        (lambda: keyed().map_keyed(lambda value: value), ("map_keyed() is called with (key, value)",)),
        (lambda: keyed().reduce(lambda a: a), ("reduce() is called with (so_far, value), and a lambda takes (a)",)),
        (lambda: windowed().count(into=lambda n: n), ("into is called with (key, window, result)",)),
        (lambda: windowed().reduce(lambda a: a), ("reduce() is called with",)),
        (lambda: stream().map(lambda value, *, extra: (value, extra)), ("takes (value, extra)",)),
        (lambda: stream().map(functools.partial(two, 1, 2)), ("is called with (value)",)),
        (lambda: stream().write(payments, key=two), ("write(key=...) is called with (value)",)),
        (lambda: keyed().process(NoContext()), ('"NoContext.on_record" is called with (value, ctx), and takes (value)', "write def on_record(self, value, ctx)")),
        (lambda: keyed().process(NoTimer()), ('"NoTimer.on_timer" is called with (timer, ctx), and takes (ctx)',)),
        (lambda: keyed().aggregate(Adding()), ('"Adding.add" is called with (accumulator, value)',)),
        (lambda: windowed().aggregate(Adding()), ('"Adding.add" is called with (accumulator, value)',)),
    ],
)  # fmt: skip
def test_a_function_with_other_parameters_is_refused(
    write: Callable[[], object], said: tuple[str, ...]
) -> None:
    refused(write, *said)


def test_a_handler_that_yields_is_refused() -> None:
    for operator, name in ((Yielding(), "on_record"), (YieldingTimer(), "on_timer")):
        kind = type(operator).__name__
        refused(
            lambda each=operator: keyed().process(each), f'"{kind}.{name}" does not yield', "ctx.emit(value)"
        )  # type: ignore[misc]


class Callee:
    def __call__(self, value: Any) -> Any:
        return value

    def method(self, value: Any, more: int = 0) -> Any:  # noqa: ARG002
        return value


def decorated(fn: Callable[[Any, Any], Any]) -> Any:
    @functools.wraps(fn)
    def around(value: Any) -> Any:
        return fn(None, value)

    return around


@pytest.mark.parametrize(
    "function",
    [
        str, int, len, repr, Payment, Callee(), Callee().method, Mock(), decorated(two), functools.partial(two, 1),
        lambda *values: values, lambda value, more=1: (value, more), lambda value: value.rounded,
        lambda value: value.reason, str.upper, print, functools.lru_cache(lambda value: value),
    ],
)  # fmt: skip
def test_whatever_can_be_called_with_a_value_is_taken(function: Any) -> None:
    stream().map(function, name="it").write(sk.topic("anything", Any))  # type: ignore[arg-type]


def test_reduce_and_map_keyed_take_what_python_brings() -> None:
    sk.pipeline("p").read_keyed(numbers).reduce(max).write(numbers)
    sk.pipeline("p").read_keyed(numbers).map_keyed(pow)
    sk.pipeline("p").read_keyed(numbers).window(MINUTE).reduce(min)


@pytest.mark.parametrize(
    "write",
    [
        lambda: stream().key_by(lambda payment: payment.crad),
        lambda: stream().map(lambda payment: payment.crad),
        lambda: keyed().sum(lambda payment: payment.crad),
        lambda: stream().write(payments, key=lambda payment: payment.crad),
    ],
)
def test_a_field_that_the_values_do_not_have_is_refused(write: Callable[[], object]) -> None:
    refused(write, 'asks for the field "crad", and Payment has none of this name', "hint: did you mean card?")


def two_kinds(payment: Payment) -> Payment | Alert:
    return payment


def test_a_field_that_only_the_values_can_tell_of_is_not_refused() -> None:
    @dataclasses.dataclass
    class Loose:
        known: int

        def __getattr__(self, name: str) -> int:
            return 1

    sk.pipeline("p").read(sk.topic("loose", Loose)).key_by(lambda value: value.unknown)
    sk.pipeline("p").read(sk.topic("free", dict)).key_by(lambda value: value.unknown)
    stream().map(two_kinds).map(lambda value: value.unknown)


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda: keyed().process(Plain), ("process() takes an operator, got the class Plain", "write process(Plain())")),
        (lambda: keyed().process(lambda *_: None), ("process() takes an operator, got a lambda",)),
        (lambda: keyed().process("Plain"), ("process() takes an operator, got the str 'Plain'",)),
        (lambda: keyed().process(Ranking()), ("call window(...) first",)),
        (lambda: windowed().process(Ranking), ("got the class Ranking",)),
        (lambda: keyed().aggregate(sum), ("aggregate() takes an aggregator, got the function sum",)),
        (lambda: keyed().aggregate(Texts), ("got the class Texts", "write aggregate(Texts())")),
        (lambda: windowed().aggregate(sum), ("aggregate() takes an aggregator",)),
        (lambda: stream().union("x"), ("union() takes streams, got the str 'x'",)),
    ],
)  # fmt: skip
def test_something_else_in_the_place_of_an_operator_is_refused(
    write: Callable[[], object], said: tuple[str, ...]
) -> None:
    refused(write, *said)


def test_an_agent_takes_a_topic_and_a_function_as_key() -> None:
    def agent(value: Payment, ctx: sk.Context[str, Any]) -> None: ...

    wrong: Any = "card"
    refused(lambda: sk.pipeline("p").agent(payments, to=wrong)(agent), "not a topic: 'card'")
    refused(lambda: sk.pipeline("p").agent(payments, key=wrong)(agent), "agent(key=...) takes a function")


def test_values_of_another_type_are_refused() -> None:
    def agent(value: Alert, ctx: sk.Context[str, Any]) -> None: ...

    wrong: Any = payments
    takes = "takes values of type Alert, the stream has Payment"
    refused(lambda: keyed().process(ForAlerts()), f'operator "ForAlerts" {takes}')
    refused(lambda: keyed().aggregate(Texts()), f'aggregator "Texts" {takes}')
    refused(lambda: windowed().process(Ranking()), f'window process "Ranking" {takes}')
    refused(lambda: sk.pipeline("p").agent(wrong)(agent), f'agent "agent" {takes}')


@pytest.mark.parametrize("kind", [Payment, Refund, Payment | None, Payment | Alert, Any, object, dict])
def test_values_that_may_be_of_the_type_are_not_refused(kind: Any) -> None:
    read = sk.pipeline("p").read_keyed(sk.topic("some", Payment))
    read.map(lambda value: value, to=kind).process(Plain())

    class Wide(sk.Operator[str, kind, Any]):
        def on_record(self, value: Any, ctx: sk.Context[str, Any]) -> None: ...

    read.process(Wide(), name="wide")


def test_a_method_that_no_stream_has_is_answered_with_the_nearest() -> None:
    for wrong, said in (
        ("flatmap", "did you mean flat_map?"),
        ("join", "a join is a union"),
        ("xyz", "there are: "),
    ):
        for each in (stream(), keyed()):
            with pytest.raises(AttributeError, match=said.replace("?", r"\?")):
                getattr(each, wrong)
    with pytest.raises(
        AttributeError, match=r"'Windowed' object has no attribute 'write'; there are: aggregate, count"
    ):
        windowed().write(numbers)
    assert not hasattr(keyed(), "_nothing")


def test_windows_without_end_need_a_trigger() -> None:
    def everything(p: sk.Pipeline, until: Any = None, **given: Any) -> sk.Pipeline:
        counting = (
            p.read(texts, until=until).key_by(str).window(sk.everything(), trigger=given.pop("trigger", None))
        )
        counting.count(**given).write(numbers)
        return p

    with pytest.raises(InvalidPipeline, match=r"never sends a result on.*sk\.CountTrigger"):
        everything(sk.pipeline("p")).plan()
    everything(sk.pipeline("p"), trigger=sk.CountTrigger(2)).plan()
    everything(sk.pipeline("p"), emit="update").plan()
    everything(sk.pipeline("p"), until="latest").plan()


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda: sk.topic(Payment, "payments"), ("swapped", 'sk.topic("payments", Payment)')),
        (lambda: sk.topic("p", Payment, time="card"), ('field "card" of type "Payment" holds a str',)),
        (
            lambda: sk.pipeline("p").read(sk.topic("p", "Payment")),
            ("is a text: write the type itself, without quotes",),
        ),  # type: ignore[arg-type]
        (lambda: sk.seconds("5"), ("seconds() takes a number", "got '5'", "sk.seconds(5)")),
        (lambda: sk.dead_letter(retries="3"), ("got '3' and 0.1",)),
        (lambda: sk.skip(retries=1, delay_s=timedelta(seconds=1)), ("delay_s is a number of seconds",)),
        (lambda: sk.fail(retries=-1), ("got -1 and 0.1",)),
    ],
)
def test_what_is_declared_outside_of_a_pipeline_is_looked_at_too(
    write: Callable[[], object], said: tuple[str, ...]
) -> None:
    refused(write, *said)


def test_a_time_may_be_a_field_of_any_type_that_may_hold_one() -> None:
    class Times(msgspec.Struct):
        a: int
        b: datetime
        c: datetime | int
        d: Any

    for name in "abcd":
        assert sk.topic("t", Times, time=name).time.time == name
