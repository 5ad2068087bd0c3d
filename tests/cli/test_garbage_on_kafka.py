"""Garbage on a source of a real broker, from somebody who may do nothing but write there, and records that are gone."""

import asyncio
import json
import os
import shutil
import signal
import struct

import cramjam
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from streamkit.kafka.produce_calls import produce as produce_call
from streamkit.model.ids import TopicPartition
from streamkit.testing.broker import Broker
from tests.cli.test_run_on_kafka import LIMIT_S, last_counts, produce, running
from tests.kafka.auditor import connected
from tests.kafka.test_careful import made, record
from tests.kafka.test_record_batches import patched

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

ZSTD = 4
BOMB_BYTES = 80 * 1024 * 1024


@pytest.fixture
def space(make_workspace, kafka_broker: Broker):
    made_space = make_workspace(kafka_broker.bootstrap)
    assert made_space.run("topics", "apply", "--execute").returncode == 0
    return made_space


def write_raw(space, partition: int, data: bytes) -> None:
    """A batch as it is, past any client that would have built it better."""

    async def send() -> None:
        place = TopicPartition(space.views, partition)
        async with connected(space.brokers) as connection:
            await connection.watch({place.topic})
            node = connection.leader(place)
            assert node is not None
            call = produce_call(9, None, 10_000, [(place, data)])
            (ack,) = await connection.send(node, call, connection.new_lane())
            assert ack.code == 0, ack

    asyncio.run(send())


def bomb() -> bytes:
    """One good record of 80 MB in a batch of a few KB."""
    data = bytearray(made(record(b""))[:61] + bytes(cramjam.zstd.compress(record(bytes(BOMB_BYTES)))))
    struct.pack_into(">i", data, 8, len(data) - 12)
    return patched(bytes(data), 0, ZSTD)


def dead_letters(space, count: int) -> list[dict[str, bytes]]:
    consumer = Consumer(
        {
            "bootstrap.servers": space.brokers,
            "group.id": "letters",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([f"{space.name}.dead-letters"])
    found = []
    while len(found) < count:
        letter = consumer.poll(0.5)
        if letter is not None and not letter.error():
            found.append(dict(letter.headers()))
    consumer.close()
    return found


def stop(run) -> None:
    os.kill(run.process.pid, signal.SIGTERM)
    assert run.process.wait(LIMIT_S) == 0


def delete_before(space, ends: dict[int, int]) -> None:
    admin = AdminClient({"bootstrap.servers": space.brokers})
    places = [ClientPartition(space.views, partition, end) for partition, end in ends.items()]
    for outcome in admin.delete_records(places).values():
        outcome.result(30)


def positions(space) -> dict[tuple[str, int], int]:
    report = json.loads(space.run("offsets", "show", space.target, "-o", "json").stdout)
    return {
        (each["topic"], each["partition"]): each["position"]
        for stage in report["stages"]
        for each in stage["inputs"]
    }


def test_bombs_and_garbled_headers_end_no_worker(space) -> None:
    assert len(bomb()) < 10_000
    produce(space, ["a"] * 10)
    for partition in range(2):
        write_raw(space, partition, bomb())
        write_raw(space, partition, made(record(b'{"page":"a"}', name=b"\xff\xfe")))
    produce(space, ["a"] * 10)
    with running(space) as run:
        assert last_counts(space, 1, 22) == {"a": 22}
        letters = dead_letters(space, 2)
        stop(run)
        assert "Traceback" not in run.log.read_text()
    for letter in letters:
        assert letter["streamkit.topic"] == space.views.encode()
        assert int(letter["streamkit.next-offset"]) == int(letter["streamkit.offset"]) + 1
        assert letter["streamkit.unreadable"] == b"%d" % len(bomb())
        assert b"when decompressed" in letter["streamkit.error"]


def test_deleted_records_stop_the_worker_until_the_gap_is_accepted(space) -> None:
    produce(space, ["a"] * 100)
    with running(space) as run:
        assert last_counts(space, 1, 100) == {"a": 100}
        stop(run)
    read = {partition: at for (topic, partition), at in positions(space).items() if topic == space.views}
    produce(space, ["a"] * 100)
    delete_before(space, {partition: at + 10 for partition, at in read.items()})

    stopped = space.run("run", space.target, STREAMKIT_LOGS="quiet")
    assert stopped.returncode == 1
    assert "SK540" in stopped.stderr
    assert "--accept-gap" in stopped.stderr

    planned = space.run("offsets", "reset", space.target, "--accept-gap", "-o", "json")
    moves = json.loads(planned.stdout)["moves"]
    assert [(move["before"], move["after"], move["lost_records"]) for move in moves] == [
        (at, at + 10, 10) for at in read.values()
    ]
    assert "20 offsets" in planned.stderr
    assert positions(space)[space.views, 0] == read[0]  # nothing was changed

    done = space.run("offsets", "reset", space.target, "--accept-gap", "--execute")
    assert done.returncode == 0, done.stderr
    assert positions(space)[space.views, 0] == read[0] + 10
    assert "there is no gap" in space.run("offsets", "reset", space.target, "--accept-gap").stderr
    with running(space) as run:
        assert last_counts(space, 1, 180) == {"a": 180}
        stop(run)
        assert "Traceback" not in run.log.read_text()


KEYED = """
import streamkit as sk

views = sk.topic("{views}", bytes, key=str)
page_views = sk.pipeline("{name}")
page_views.read_keyed(views).count(name="per_page").write(sk.topic("{counts}", int))
"""


def test_rows_of_half_a_span_stay_out_of_state_behind_a_gap(space) -> None:
    module = space.folder / "services" / "page_views" / "pipeline.py"
    module.write_text(KEYED.format(views=space.views, counts=space.counts, name=space.name))
    (space.folder / "settings.toml").write_text('guarantee = "at_least_once"')
    settings = ("--settings", "settings.toml")
    produce(space, ["a"] * 10)
    with running(space, *settings) as run:
        assert sum(last_counts(space, 10, 10).values()) == 10
        stop(run)
    read = {partition: at for (topic, partition), at in positions(space).items() if topic == space.views}
    written = leave_strays(space)
    assert len(written) == 10
    produce(space, ["a"] * 10)
    delete_before(space, {partition: at + 1 for partition, at in read.items()})
    done = space.run("offsets", "reset", space.target, "--accept-gap", "--execute")
    assert done.returncode == 0, done.stderr
    shutil.rmtree(space.folder / ".streamkit")
    produce(space, ["a"] * 10)
    with running(space, *settings) as run:
        counts = last_counts(space, 10, 28)
        stop(run)
    assert sorted(counts.values()) == [2, 2, *[3] * 8]


def leave_strays(space) -> set[bytes]:
    """Another value of every count, behind the last commit record of its changelog partition."""
    options = {"bootstrap.servers": space.brokers, "group.id": "strays"}
    admin, consumer = AdminClient({"bootstrap.servers": space.brokers}), Consumer(options)
    (changelog,) = [
        name
        for name in admin.list_topics().topics
        if name.startswith(space.name) and name.endswith(".changelog.1")
    ]
    producer, written = Producer({"bootstrap.servers": space.brokers}), set()
    for partition in range(2):
        place = ClientPartition(changelog, partition, 0)
        _, end = consumer.get_watermark_offsets(place)
        consumer.assign([place])
        while consumer.position([place])[0].offset < end:
            row = consumer.poll(0.5)
            if row is not None and row.key()[0] < 4 and row.key() not in written:
                written.add(row.key())
                producer.produce(changelog, b"\x01\x63", row.key(), partition)  # 99
    consumer.close()
    assert producer.flush(30) == 0
    return written
