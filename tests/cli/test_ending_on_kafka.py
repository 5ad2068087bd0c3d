"""The end of a bounded pipeline on a real broker: what became of it, its exit code, and what is said the next time."""

import json
import re

import pytest
from confluent_kafka import Producer

from streamkit.cli.ending import EXIT_ALL_DEAD
from streamkit.testing.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

GOOD, BAD = b'{"page": "home"}', b"rubbish"


def bounded(make_workspace, broker: Broker, *values: bytes):
    """A workspace whose pipeline ends, and whose topic holds these values."""
    space = make_workspace(broker.bootstrap)
    module = space.folder / "services" / "page_views" / "pipeline.py"
    module.write_text(module.read_text().replace("read(views)", 'read(views, until="latest")'))
    assert space.run("topics", "apply", "--execute").returncode == 0
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number, value in enumerate(values):
        producer.produce(space.views, value, partition=number % 2)
    assert producer.flush(30) == 0
    return space


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_bounded_pipeline_tells_what_became_of_it_and_later_that_it_had_finished(
    make_workspace, kafka_broker: Broker, workers: str
) -> None:
    space = bounded(make_workspace, kafka_broker, GOOD, GOOD, BAD, GOOD)
    done = space.run("run", space.target, "--workers", workers, "--output", "json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {name: told[name] for name in ("records_in", "records_out", "late", "dead_letters")} == {
        "records_in": 4,
        "records_out": 3,
        "late": 0,
        "dead_letters": 1,
    }
    again = space.run("run", space.target, "--workers", workers)
    assert again.returncode == 0
    assert "had finished before; nothing was read" in again.stderr
    (recommended,) = re.findall(r"`streamkit (offsets reset .*?)`", again.stderr)
    assert space.run(*recommended.split()).returncode == 0
    anew = space.run("run", space.target, "--workers", workers, "--output", "json")
    assert json.loads(anew.stdout)["records_in"] == 4
    assert next(line.split() for line in again.stdout.splitlines()) == ["records", "in", "4"]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_nothing_but_dead_letters_has_an_exit_code_of_its_own(
    make_workspace, kafka_broker: Broker, workers: str
) -> None:
    space = bounded(make_workspace, kafka_broker, BAD, BAD)
    done = space.run("run", space.target, "--workers", workers)
    assert done.returncode == EXIT_ALL_DEAD, done.stderr
    assert "every one of 2 records became a dead letter" in done.stderr
    assert space.run("run", space.target).returncode == EXIT_ALL_DEAD
