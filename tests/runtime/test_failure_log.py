"""What is told and counted of records that fail: as many as there are letters, each kind of failure, and its line."""

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest
from structlog.testing import capture_logs

import streamkit as sk
from streamkit.errors import line_of
from streamkit.runtime.letters import reason_of
from streamkit.testing import Harness
from tests.runtime.pages import COUNTS, VIEWS, Count, View


def events(logs: list[Any], event: str) -> list[Any]:
    return [entry for entry in logs if entry["event"] == event]


# -- where -------------------------------------------------------------------------------------------------------------------


class EmitsWrong(sk.Operator[str, View, Count]):
    """Hands over what cannot be written."""

    def on_record(self, value: View, ctx: sk.Context[str, Count]) -> None:
        ctx.emit(value)  # type: ignore[arg-type]  # that is the point


def line_in(function: Callable[..., Any], text: str) -> str:
    lines, first = inspect.getsourcelines(function)
    (at,) = [number for number, line in enumerate(lines, first) if text in line]
    return f"{inspect.getsourcefile(function)}:{at}"


def test_the_line_is_the_users_and_not_ours() -> None:
    pipeline = sk.pipeline("lines")
    pipeline.read_keyed(VIEWS).process(EmitsWrong(), name="wrong").write(COUNTS)
    with capture_logs() as logs, Harness(pipeline, partitions=1) as harness:
        harness.send(VIEWS, View("a"), key="a")
        harness.run()
        assert len(harness.dead_letters()) == 1
    (told,) = events(logs, "record failed")
    assert told["line"] == line_in(EmitsWrong.on_record, "ctx.emit")


def test_where_no_code_of_the_users_was_at_work_no_line_is_told() -> None:
    pipeline = sk.pipeline("lines")
    pipeline.read(VIEWS).map(lambda view: 7, to=View).write(sk.topic("out", View))  # noqa: ARG005 - the value is wrong
    with capture_logs() as logs, Harness(pipeline, partitions=1) as harness:
        harness.send(VIEWS, View("a"))
        harness.run()
        assert len(harness.dead_letters()) == 1
    (told,) = events(logs, "record failed")
    assert "line" not in told


def users() -> None:
    """Raises what our code makes another error of."""
    raise ValueError("mine")


def test_an_error_that_came_of_the_users_is_at_its_line() -> None:
    def wrap() -> None:
        try:
            users()
        except ValueError as error:
            raise TypeError from error

    ours = FunctionType(wrap.__code__, {"__name__": "streamkit.somewhere", "users": users})
    with pytest.raises(TypeError) as caught:
        ours()
    assert caught.value.__traceback__ is not None
    caught.value.__traceback__ = caught.value.__traceback__.tb_next  # without this test
    assert line_of(caught.value) == line_in(users, "raise ValueError")
    assert reason_of("step", caught.value).line == line_in(users, "raise ValueError")
