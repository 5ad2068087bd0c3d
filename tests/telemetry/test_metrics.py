"""What a worker tells about itself, and how it is served."""

import socket
import urllib.request

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

import streamkit as sk
from streamkit.config import Settings
from streamkit.errors import Misconfigured
from streamkit.runtime.status import worker_status
from streamkit.runtime.worker import metrics_of
from streamkit.telemetry.metrics import serve_metrics
from streamkit.telemetry.status import WorkerStatus
from streamkit.testing import Harness
from streamkit.windows import CountEvictor, session, tumbling


class Click(msgspec.Struct):
    page: str
    at: int


CLICKS = sk.topic("clicks", Click, time="at", late=sk.seconds(1))
COUNTS = sk.topic("counts", int)


def windowed() -> sk.Pipeline:
    pipeline = sk.pipeline("windowed")
    keyed = pipeline.read(CLICKS).key_by(lambda click: click.page)
    keyed.window(tumbling(sk.seconds(10))).count(name="plain").write(COUNTS)
    keyed.window(session(sk.seconds(3))).count(name="sessions").write(COUNTS)
    keyed.window(tumbling(sk.seconds(10)), evictor=CountEvictor(5)).count(name="elements").write(COUNTS)
    return pipeline


def status_of(harness: Harness) -> WorkerStatus:
    loop = harness.workers[0].loop
    assert loop is not None
    return worker_status(loop, "windowed", harness.now_ms)


def total(status: WorkerStatus, what: str) -> int:
    return sum(task.totals.get(what, 0) for task in status.tasks)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def send(harness: Harness, *times: int) -> None:
    for time in times:
        for page in ("home", "cart"):
            harness.send(CLICKS, Click(page, time * 1000), key=page)


def test_open_windows_and_late_records_are_counted_as_they_were_committed() -> None:
    with Harness(windowed(), partitions=1) as harness:
        send(harness, 1, 2, 4)
        harness.run()
        send(harness, 9)
        harness.run()
        steps = ("plain", "sessions", "elements")
        is_open = sum(len(harness.windows(step)) for step in steps)
        assert total(status_of(harness), "open_windows") == is_open == 2 * 3  # the first sessions are over
        harness.crash()
        harness.restart()
        harness.advance(event_time={CLICKS: 100_000})
        send(harness, 4)
        harness.run()
        status = status_of(harness)
        assert total(status, "open_windows") == 0
        assert total(status, "late_records") == 2 * 3  # once for each step that could not take it any more
        assert {task.event_time_ms for task in status.tasks} == {100_000}
        assert all(task.delay_ms and task.delay_ms > 0 for task in status.tasks)


def test_metrics_are_served_on_the_loopback_address_until_they_are_stopped() -> None:
    port = free_port()
    with Harness(windowed(), partitions=1) as harness:
        send(harness, 1, 2, 30)
        harness.run()
        harness.advance(1)
        stop = serve_metrics(lambda: status_of(harness), port)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                text = answer.read().decode()
        finally:
            stop()
    found = {family.name: family for family in text_string_to_metric_families(text)}
    samples = {
        (each.labels["stage"], each.value) for each in found["streamkit_watermark_delay_seconds"].samples
    }
    assert {stage for stage, _ in samples} == {"clicks", "key_by"}
    assert sum(each.value for each in found["streamkit_open_windows"].samples) == 2 * 3
    assert {"streamkit_late_records", "streamkit_timers_near", "streamkit_commits"} <= set(found)
    (local,) = found["streamkit_local_shuffle_partitions"].samples
    assert local.value == 1
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10)


def test_a_port_that_is_taken_is_said_with_a_hint() -> None:
    port = free_port()
    with Harness(windowed(), partitions=1) as harness:
        loop = harness.workers[0].loop
        assert loop is not None
        settings = Settings(metrics_port=port)
        with (
            metrics_of(loop, "windowed", settings),
            pytest.raises(Misconfigured, match=f"port {port}"),
            metrics_of(loop, "windowed", settings),
        ):
            pass


def test_without_a_port_nobody_listens() -> None:
    with Harness(windowed(), partitions=1) as harness:
        loop = harness.workers[0].loop
        assert loop is not None
        with metrics_of(loop, "windowed", Settings()):
            pass
