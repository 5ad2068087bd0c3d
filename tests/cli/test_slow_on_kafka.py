"""Blocking code on a real broker: it costs time and nothing else, unless it never ends."""

import json
import os
import signal
import time
import uuid

import pytest
from confluent_kafka import Consumer

from streamkit.testing.broker import Broker
from tests.cli.test_run_on_kafka import LIMIT_S, Run, produce, running

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

PIPELINE = """
import time

import msgspec
import streamkit as sk


class View(msgspec.Struct):
    page: str


def fetch(view: View) -> int:
    time.sleep({sleep})
    return len(view.page)


views = sk.topic("{views}", View)
counts = sk.topic("{counts}", int)
page_views = sk.pipeline("{name}")
page_views.read(views).map(fetch).write(counts)
"""
# 50 s of work, far more than a session.
RECORDS = 2_000
SLEEP_S = 0.025
SESSION_S = 6.0


@pytest.fixture
def space(make_workspace, kafka_broker: Broker, monkeypatch: pytest.MonkeyPatch):
    made = make_workspace(kafka_broker.bootstrap)
    made.declare(made.counts, "partitions = 2")
    assert made.run("topics", "apply", "--execute").returncode == 0
    environment = made.environment
    made.extra = {"STREAMKIT_SESSION_TIMEOUT_S": str(SESSION_S)}
    monkeypatch.setattr(made, "environment", lambda **extra: environment(**made.extra, **extra))
    return made


def write_pipeline(space, sleep: str) -> None:
    module = space.folder / "services" / "page_views" / "pipeline.py"
    module.write_text(PIPELINE.format(sleep=sleep, views=space.views, counts=space.counts, name=space.name))


class Arrivals:
    """Committed records of a topic, and when they were seen."""

    def __init__(self, space, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": space.brokers,
                "group.id": uuid.uuid4().hex,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        self._consumer.subscribe([topic])
        # By place: a consumer that has to join again reads from the beginning.
        self.values: dict[tuple[int, int], bytes] = {}
        self.headers: list[dict[str, bytes]] = []
        self.gap_s = 0.0
        self._last_s = 0.0

    def take(self, run: Run, count: int) -> None:
        """Read until there are so many."""
        run.until(f"{count} records", lambda: self._has(count))

    def _has(self, count: int) -> bool:
        for record in self._consumer.consume(1000, 0.5):
            if not record.error():
                self._note(record)
        return len(self.values) >= count

    def _note(self, record) -> None:
        place = (record.partition(), record.offset())
        if place in self.values:
            return
        now_s = time.monotonic()
        if self._last_s:
            self.gap_s = max(self.gap_s, now_s - self._last_s)
        self._last_s = now_s
        self.values[place] = record.value()
        self.headers.append(dict(record.headers() or []))

    def close(self) -> None:
        self._consumer.close()


def test_a_backlog_of_slow_records_is_committed_steadily_in_one_session(space) -> None:
    write_pipeline(space, str(SLEEP_S))
    produce(space, ["page"] * RECORDS)
    arrivals = Arrivals(space, space.counts)
    with running(space) as run:
        arrivals.take(run, RECORDS)
        os.kill(run.process.pid, signal.SIGTERM)
        assert run.process.wait(LIMIT_S) == 0
    arrivals.close()
    assert len(arrivals.values) == RECORDS
    assert arrivals.gap_s < SESSION_S / 2
    assert len(run.events("assignment")) == 1
    assert not [line for line in run.lines() if line["level"] in ("warning", "error")]
    (stopped,) = run.events("worker stopped")
    assert int(str(stopped["commits"])) > RECORDS * SLEEP_S * 2


def test_a_record_that_outlasts_its_limit_becomes_a_dead_letter_and_the_others_are_processed(space) -> None:
    write_pipeline(space, "4 if view.page == 'stuck' else 0.001")
    space.extra["STREAMKIT_PROCESSING_MAX_S"] = "2"
    produce(space, [*["fine"] * 50, "stuck", *["fine"] * 50])
    arrivals, letters = Arrivals(space, space.counts), Arrivals(space, f"{space.name}.dead-letters")
    with running(space, "--workers", "2") as run:
        arrivals.take(run, 100)
        letters.take(run, 1)
        os.kill(run.process.pid, signal.SIGTERM)
        assert run.process.wait(LIMIT_S) == 0
    arrivals.close()
    letters.close()
    assert len(arrivals.values) == 100
    (letter,) = letters.headers
    assert letter["streamkit.step"] == b"fetch"
    assert b"processing_max_s (2 s), 2 times" in letter["streamkit.error"]
    held = run.events("a step holds the event loop for too long: leaving the group")
    place = f"{space.views}[{int(letter['streamkit.partition'])}]@{int(letter['streamkit.offset'])}"
    assert [(line["step"], line["in_hand"]) for line in held] == [("fetch", place)] * 2


def test_records_that_outlast_the_limit_only_together_are_all_processed_once(space) -> None:
    """Quick ones let a chunk grow, and at each start to the same size; the slow ones in it take two limits."""
    write_pipeline(space, "0.7 if view.page.startswith('slow') else 0.0")
    space.extra["STREAMKIT_PROCESSING_MAX_S"] = "2"
    produce(space, [*["fine"] * 126, *["slower"] * 12, *["fine"] * 126])
    arrivals = Arrivals(space, space.counts)
    with running(space, "--workers", "2") as run:
        arrivals.take(run, 264)
        os.kill(run.process.pid, signal.SIGTERM)
        assert run.process.wait(LIMIT_S) == 0
    arrivals.close()
    assert sorted(arrivals.values.values()) == [b"4"] * 252 + [b"6"] * 12
    assert run.events(
        "several records together held the event loop for too long: up to here they are run one at a time"
    )
    report = json.loads(space.run("offsets", "show", space.target, "-o", "json").stdout)
    assert report["lag_records"] == 0


def test_a_step_that_never_returns_ends_its_process_and_then_as_a_dead_letter(space) -> None:
    write_pipeline(space, "1000 if view.page == 'stuck' else 0.001")
    space.extra["STREAMKIT_PROCESSING_MAX_S"] = "2"
    produce(space, [*["fine"] * 50, "stuck", *["fine"] * 50])
    arrivals, letters = Arrivals(space, space.counts), Arrivals(space, f"{space.name}.dead-letters")
    with running(space, "--workers", "2") as run:
        arrivals.take(run, 100)
        letters.take(run, 1)
        os.kill(run.process.pid, signal.SIGTERM)
        assert run.process.wait(LIMIT_S) == 0
    arrivals.close()
    letters.close()
    assert len(arrivals.values) == 100
    assert {line["how"] for line in run.events("worker died: starting it again")} == {"exit code 75"}
