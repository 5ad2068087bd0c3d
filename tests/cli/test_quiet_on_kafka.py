"""Ordinary events draw no warning: whoever is woken by one must find something to do."""

import pytest
from confluent_kafka import Producer

from streamkit.testing.broker import Broker
from tests.cli.test_run_on_kafka import running

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

WORKERS = 3


def test_starts_stops_and_other_workers_are_no_reason_to_warn(make_workspace, kafka_broker: Broker) -> None:
    """Twice, because the second time there are commits of workers that have ended."""
    space = make_workspace(kafka_broker.bootstrap)
    for topic in (space.views, space.counts):
        space.declare(topic, "partitions = 6")
    assert space.run("topics", "apply", "--execute").returncode == 0
    producer = Producer({"bootstrap.servers": space.brokers})
    for _ in range(3):
        for number in range(60):
            producer.produce(space.views, b'{"page": "p%d"}' % number, partition=number % 6)
        assert producer.flush(30) == 0
        with running(space, "--workers", str(WORKERS)) as run:
            run.until("all have their tasks", lambda: len(run.events("assignment")) >= WORKERS)
            run.process.terminate()
            assert run.process.wait() == 0
        loud = [line for line in run.lines() if line["level"] not in ("info", "debug")]
        assert loud == []


def test_two_workers_of_one_name_are_told_at_once_with_what_helps(
    make_workspace, kafka_broker: Broker
) -> None:
    space = make_workspace(kafka_broker.bootstrap)
    assert space.run("topics", "apply", "--execute").returncode == 0
    with running(space, "--state-dir", "a") as first:
        first.until("it has its tasks", lambda: bool(first.events("assignment")))
        with running(space, "--state-dir", "b", log="log-b") as second:
            for run in (first, second):
                run.until("it is told", lambda run=run: bool(run.events("another worker has our name")))
            (told,) = second.events("another worker has our name")
            assert "STREAMKIT_WORKER" in str(told["hint"])
