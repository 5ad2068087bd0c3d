"""Positions of a pipeline that keeps no state may be set after it has run, on a real broker too."""

import json

import pytest
from confluent_kafka import Producer

from streamkit.testing.broker import Broker
from tests.cli.test_run_on_kafka import running


@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_on_a_real_broker(make_workspace, kafka_broker: Broker) -> None:
    space = make_workspace(kafka_broker.bootstrap)
    module = space.folder / "services" / "page_views" / "pipeline.py"
    source = module.read_text().replace('.count(name="per_page")', ".map(lambda view: 1, to=int)")
    module.write_text(source)
    assert space.run("topics", "apply", "--execute").returncode == 0
    producer = Producer({"bootstrap.servers": space.brokers})
    producer.produce(space.views, b'{"page": "home"}', partition=0)
    assert producer.flush(30) == 0

    def run_until_all_is_read() -> None:
        with running(space) as run:
            run.until("all is read", lambda: offsets()["lag_records"] == 0 and offsets()["members"] == 1)
            run.process.terminate()
            assert run.process.wait() == 0

    def offsets() -> dict:
        return json.loads(space.run("offsets", "show", space.target, "-o", "json").stdout)

    run_until_all_is_read()
    done = space.run("offsets", "reset", space.target, "--to", "earliest", "--execute")
    assert done.returncode == 0, done.stderr
    assert offsets()["lag_records"] == 1
    run_until_all_is_read()
