"""Workers started from Python: one of several things that an event loop serves, or a script that ends with its input."""

import asyncio
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

import streamkit as sk
from streamkit.config import Settings
from streamkit.testing.broker import Broker
from tests.kafka.auditor import create_topic, write

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]

SCRIPT = """
import sys
import streamkit as sk

pipeline = sk.pipeline(sys.argv[1])
pipeline.read(sk.topic(sys.argv[2], int), until="latest").map(lambda n: n + 1).write(sk.topic(sys.argv[3], int))
sk.run(pipeline, brokers=sys.argv[4], state_dir=sys.argv[5])
"""


class Site:
    """Two topics, and a folder for state."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.state = str(folder)
        self.name = f"served-{uuid.uuid4().hex[:8]}"
        self.source, self.target = create_topic(bootstrap), create_topic(bootstrap)

    def pipeline(self) -> sk.Pipeline:
        pipeline = sk.pipeline(self.name)
        pipeline.read(sk.topic(self.source, int)).map(lambda n: n + 1).write(sk.topic(self.target, int))
        return pipeline

    def send(self, *numbers: int) -> None:
        write(self.bootstrap, TopicPartition(self.source, 0), [str(number).encode() for number in numbers])

    def results(self, count: int) -> list[int]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.name + "-audit",
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition(self.target, 0, 0)])
        try:
            found = [record for record in consumer.consume(count, timeout=30) if record.error() is None]
            return [int(record.value() or b"") for record in found]
        finally:
            consumer.close()


@pytest.fixture
def site(kafka_broker: Broker, tmp_path: Path) -> Site:
    return Site(kafka_broker.bootstrap, tmp_path)


async def test_a_worker_beside_other_work_commits_and_leaves_when_it_is_cancelled(site: Site) -> None:
    given = Settings(brokers=site.bootstrap, state_dir=site.state)
    for begin in (0, 10):  # the second one goes on where the first has stopped
        site.send(*range(begin, begin + 10))
        serving = asyncio.create_task(sk.serve(site.pipeline(), given))
        assert await asyncio.to_thread(site.results, begin + 10) == [n + 1 for n in range(begin + 10)]
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving


def test_a_script_ends_with_its_input(site: Site) -> None:
    site.send(1, 2, 3)
    arguments = [site.name, site.source, site.target, site.bootstrap, site.state]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], check=False, capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr.decode()
    assert site.results(3) == [2, 3, 4]
