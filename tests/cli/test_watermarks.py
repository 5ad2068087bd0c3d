"""`streamkit watermarks` on a real broker, and the bounded run that ends by itself."""

import json

import pytest
from confluent_kafka import Producer

from streamkit.testing.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

WINDOWED = """
import msgspec
import streamkit as sk
from streamkit.windows import tumbling


class View(msgspec.Struct):
    page: str
    at: int


views = sk.topic("{views}", View, time="at", late=sk.seconds(1))
counts = sk.topic("{counts}", int)
page_views = sk.pipeline("{name}")
read = page_views.read(views, until={until})
by_page = read.key_by(lambda view: view.page, key_type=str, name="by_page")
by_page.window(tumbling(sk.seconds(10))).count(name="per_page").write(counts)
"""


def write_pipeline(space, until: str | None) -> None:
    text = WINDOWED.format(views=space.views, counts=space.counts, name=space.name, until=repr(until))
    (space.folder / "services" / "page_views" / "pipeline.py").write_text(text)


def test_who_holds_event_time_back_is_named(make_workspace, kafka_broker: Broker) -> None:
    space = make_workspace(kafka_broker.bootstrap)
    before = space.run("watermarks", space.target)
    assert before.returncode == 0
    assert "no step of this pipeline asks for event time" in before.stderr
    write_pipeline(space, until="latest")
    assert space.run("topics", "apply", "--execute").returncode == 0
    assert "nothing was committed yet" in space.run("watermarks", space.target).stderr

    producer = Producer({"bootstrap.servers": space.brokers})
    for second in (1, 5, 30):
        value = json.dumps({"page": "home", "at": 1_600_000_000_000 + second * 1000}).encode()
        producer.produce(space.views, value, b"home", partition=1)
    assert producer.flush(30) == 0
    done = space.run("run", space.target, "--workers", "2", STREAMKIT_LOGS="quiet")
    assert done.returncode == 0, done.stderr  # the input has an end, so the workers have one too

    report = json.loads(space.run("watermarks", space.target, "--output", "json").stdout)
    statuses = {(each["stage"], each["partition"]): each["status"] for each in report["tasks"]}
    assert statuses == dict.fromkeys([(s, p) for s in (space.views, "by_page") for p in (0, 1)], "finished")
    offsets = json.loads(space.run("topics", "describe", space.counts, "-o", "json").stdout)["partitions"]
    assert sum(each["end_offset"] for each in offsets) >= 2  # both windows have closed

    table = space.run("watermarks", space.target).stdout
    assert "TASK" in table
    assert "by_page/0" in table
    assert "finished" in table
