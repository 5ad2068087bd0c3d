"""Two of the queries as a user runs them: `streamkit run` with two workers on a real broker, read by another client."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from examples.nexmark.events import Event, bids, generate, placed
from streamkit.testing.broker import Broker
from tests.nexmark import independent

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
COMMAND = str(Path(sys.executable).with_name("streamkit"))
PARTITIONS = 3
LIMIT_S = 90.0


@pytest.fixture(scope="module")
def world(kafka_broker: Broker) -> list[Event]:
    """Everything that happened, its bids in a topic."""
    events = generate(4_000, seed=13)
    names = (bids.name, "nexmark-q5", "nexmark-q11")
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    for done in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
        done.result(20)
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap, "linger.ms": 20})
    for topic, key, event in placed(events):
        if topic is bids:
            producer.produce(topic.name, msgspec.json.encode(event), str(key).encode())
    assert producer.flush(30) == 0
    return events


def committed_rows(brokers: str, topic: str) -> list[independent.Row]:
    """All that is committed in a topic, up to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": f"audit-{topic}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    rows, ended = [], 0
    while ended < PARTITIONS:
        record = consumer.poll(LIMIT_S)
        assert record is not None, f"{topic} does not end"
        if record.error():
            ended += 1
        else:
            rows.append(tuple(json.loads(record.value()).values()))
    consumer.close()
    return sorted(rows)


@pytest.mark.parametrize(("query", "compute"), [("q5", independent.q5), ("q11", independent.q11)])
def test_two_workers_answer_what_the_definition_says_and_stop(
    query, compute, world: list[Event], kafka_broker: Broker, tmp_path: Path
) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STREAMKIT_")}
    done = subprocess.run(
        [COMMAND, "run", f"examples.nexmark.{query}:pipeline", "--workers", "2"],
        cwd=ROOT,
        env={**kept, "STREAMKIT_BROKERS": kafka_broker.bootstrap, "STREAMKIT_STATE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "starting it again" not in done.stderr
    assert committed_rows(kafka_broker.bootstrap, f"nexmark-{query}") == compute(world)
