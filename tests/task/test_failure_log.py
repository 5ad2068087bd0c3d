"""What is told and counted of records that fail: as many as there are letters, each kind of failure, and its line."""

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest
from structlog.testing import capture_logs

import streamkit as sk
from streamkit.errors import EncodeError, line_of
from streamkit.runtime.status import worker_status
from streamkit.task import failure_log
from streamkit.task.letters import reason_of
from streamkit.telemetry.metrics import WorkerMetrics
from streamkit.testing import Harness
from tests.runtime.pages import COUNTS, VIEWS, Count, View, as_count, page_of
from tests.task.test_careful import Refusing, refusing

MORE = "more failed in the same step"


def metric(harness: Harness, name: str) -> float:
    loop = harness.workers[0].loop
    assert loop is not None
    metrics = WorkerMetrics(lambda: worker_status(loop, "p", harness.now_ms))
    return sum(sample.value for each in metrics.collect() for sample in each.samples if sample.name == name)


def events(logs: list[Any], event: str) -> list[Any]:
    return [entry for entry in logs if entry["event"] == event]


# -- how many ----------------------------------------------------------------------------------------------------------------


def test_what_is_counted_is_what_is_committed() -> None:
    def picky(view: View) -> View:
        if view.user == "worse":
            raise ValueError("no worse")  # found on the spot, in spans that are dropped for the others
        return view

    pipeline = sk.pipeline("counted")
    pipeline.read(VIEWS).map(picky).key_by(page_of).process(Refusing(), name="refusing").write(COUNTS)
    with capture_logs() as logs, Harness(pipeline, partitions=2) as harness:
        for number in range(14):
            for user in ("bad", "worse", "good"):
                harness.send(VIEWS, View(f"page-{number}", user), key=str(number))
        harness.run()
        harness.advance(11)
        assert len(harness.dead_letters()) == 28
        assert metric(harness, "streamkit_records_set_aside_total") == 28
    by_step = {entry["step"]: entry["count"] for entry in events(logs, MORE)}
    assert by_step == {"picky": 13, "refusing": 13}
    assert len(events(logs, "record failed")) == 2


def test_a_burst_is_summed_up_though_nothing_follows() -> None:
    with capture_logs() as logs, Harness(refusing(Refusing()), partitions=1) as harness:
        for _ in range(20):
            harness.send(VIEWS, View("a", "bad"))
        harness.run()
        assert not events(logs, MORE)
        harness.advance(10.5)
        (summary,) = events(logs, MORE)
        assert (summary["step"], summary["count"]) == ("refusing", 19)
        assert len(harness.dead_letters()) == 20


def test_what_is_not_told_yet_is_told_at_the_end() -> None:
    pipeline = sk.pipeline("ending")
    pipeline.read(VIEWS, until="latest").map(lambda _: 1 // 0, to=int, name="divide").write(
        sk.topic("out", int)
    )
    with capture_logs() as logs, Harness(pipeline, partitions=1, workers=0) as harness:
        for _ in range(20):
            harness.send(VIEWS, View("a"))
        harness.scale(1)
        harness.run()
        assert len(harness.dead_letters()) == 20
    (summary,) = events(logs, MORE)
    assert (summary["step"], summary["count"]) == ("divide", 19)


def test_different_errors_of_a_step_are_each_told() -> None:
    pipeline = sk.pipeline("pages")
    pipeline.read(VIEWS).key_by(page_of).count(name="n").map_keyed(as_count).write(COUNTS)
    with capture_logs() as logs, Harness(pipeline, partitions=1) as harness:
        for data in (b"{not json", b'{"page": 7}', None) * 3:
            harness.send_bytes("views", data)
        harness.run()
        harness.advance(11)
        assert len(harness.dead_letters()) == 9
    errors = [entry["error"] for entry in events(logs, "record failed")]
    assert len(errors) == 3
    assert any("malformed" in each for each in errors)
    assert any("Expected `str`" in each for each in errors)
    assert any("tombstone" in each for each in errors)
    summed = events(logs, MORE)
    assert [entry["count"] for entry in summed] == [2, 2, 2]
    assert len({entry["error"] for entry in summed}) == 3


def test_errors_of_a_thousand_classes_are_not_all_told() -> None:
    def many(view: View) -> View:
        raise type(f"Error{view.page}", (ValueError,), {})("no")

    pipeline = sk.pipeline("many")
    pipeline.read(VIEWS).map(many).write(sk.topic("out", View))
    with capture_logs() as logs, Harness(pipeline, partitions=1) as harness:
        for number in range(1000):
            harness.send(VIEWS, View(str(number)))
        harness.run()
        harness.advance(11)
        assert len(harness.dead_letters()) == 1000
    told = len(events(logs, "record failed"))
    assert told == failure_log.KINDS_MAX + 1
    assert told + sum(entry["count"] for entry in events(logs, MORE)) == 1000


# -- tries -------------------------------------------------------------------------------------------------------------------


def test_a_task_that_waits_says_why_once_and_then_how_often() -> None:
    policy = sk.dead_letter(retries=2, delay_s=0.1)
    with capture_logs() as logs, Harness(refusing(Refusing(), on_error=policy), partitions=1) as harness:
        for _ in range(10):
            harness.send(VIEWS, View("a", "bad"))
        harness.run()
        harness.advance(11)
        assert len(harness.dead_letters()) == 10
    (waits,) = events(logs, "task waits")
    assert (waits["step"], waits["error"]) == ("refusing", "ValueError: no bad")
    assert waits["seconds"] == 0.1
    counts = {entry["kind"]: entry["count"] for entry in events(logs, MORE)}
    assert counts["task waits"] == 19
    assert counts["record failed"] <= 10


def test_a_value_of_another_type_is_not_tried_again() -> None:
    runs: list[str] = []

    def wrong(view: View) -> Any:
        runs.append(view.page)
        return 7 if view.page == "bad" else view

    pipeline = sk.pipeline("wrong", on_error=sk.dead_letter(retries=5, delay_s=60.0))
    pipeline.read(VIEWS).map(wrong, to=View).write(sk.topic("out", View))
    with capture_logs() as logs, Harness(pipeline, partitions=1) as harness:
        harness.send(VIEWS, View("a"), View("bad"), View("b"))
        harness.run()
        (letter,) = harness.dead_letters()
        assert b"View" in (letter.headers["streamkit.error"] or b"")
    assert runs.count("bad") <= 2
    assert not events(logs, "task waits")


def test_an_error_of_that_class_that_the_users_code_raised_is_tried_again() -> None:
    runs: list[str] = []

    def flaky(view: View) -> View:
        runs.append(view.page)
        if len(runs) < 3:
            raise EncodeError("the service takes no such value now")
        return view

    pipeline = sk.pipeline("flaky", on_error=sk.dead_letter(retries=5))
    pipeline.read(VIEWS).map(flaky).write(sk.topic("out", View))
    with Harness(pipeline, partitions=1) as harness:
        harness.send(VIEWS, View("a"))
        harness.run()
        assert harness.dead_letters() == []
    assert len(runs) == 3


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
