"""Records at a fixed rate whatever the system does, and a read_committed reader that notes when results arrive.

Both run in processes of their own. Record i belongs to user i mod 1,000, so the c-th result of a user tells which
record it answers, and the delay counts from the moment when that record was due, not from when it was sent.
"""

import multiprocessing
import time
import uuid
from functools import partial
from multiprocessing.connection import Connection
from typing import NamedTuple

import orjson
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.benchmarks.cluster import PARTITIONS

USERS = 1_000
PROBE = "probe"
# What is due goes out together this often: a request per record would make the broker the thing that is measured.
TICK_S = 0.005

SPAWN = multiprocessing.get_context("spawn")


class Load(NamedTuple):
    """How many records, and how many a second."""

    records: int
    per_s: int


def user(number: int) -> str:
    return f"u{number:06d}"


def hit(name: str) -> bytes:
    """A 100-byte value, as `prefill` makes them."""
    text = b'{"user":"%s","item":"i000001","price":123.45,"ts":1700000000000,"pad":"' % name.encode()
    return text + b"x" * (98 - len(text)) + b'"}'


def make_producer(bootstrap: str) -> Producer:
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 1, "acks": "all", "log_level": 0}
    return Producer({**settings, "queue.buffering.max.messages": 1_000_000})


def produce(bootstrap: str, topic: str, load: Load, wire: Connection) -> None:
    """Send every record when it is due; tells the parent when it begins, and how late each one was in its topic."""
    producer = make_producer(bootstrap)
    producer.list_topics(topic)  # connected before the clock starts
    start_s = time.time() + 0.1
    wire.send(start_s)
    values = [hit(user(number)) for number in range(USERS)]
    late_s: list[float] = []

    def acknowledged(due_s: float, error: object, _message: object) -> None:
        if error is None:
            late_s.append(time.time() - due_s)

    sent = 0
    while sent < load.records:
        due = min(load.records, int((time.time() - start_s) * load.per_s) + 1)
        for number in range(sent, due):
            key, partition = b"k%07d" % (number % USERS), number % PARTITIONS
            on_delivery = partial(acknowledged, start_s + number / load.per_s)
            producer.produce(topic, values[number % USERS], key, partition, on_delivery=on_delivery)
        sent = max(sent, due)
        producer.poll(0)
        time.sleep(TICK_S)
    producer.flush()
    wire.send(late_s)


def read(bootstrap: str, topic: str, load: Load, wire: Connection) -> None:
    """Note every result; tells the parent of the first probe, and at the end (when asked) of all arrivals."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
    arrivals: list[tuple[float, str, int]] = []
    probed = False
    while len(arrivals) < load.records and not (len(arrivals) % 100 == 0 and wire.poll()):
        # One by one: `consume` would wait until it has as many as it was asked for.
        message = consumer.poll(0.05)
        if message is None or message.error():
            continue
        name = message.key().decode()
        if name != PROBE:
            arrivals.append((time.time(), name, orjson.loads(message.value())["c"]))
        elif not probed:
            probed = True
            wire.send(PROBE)
    wire.send(arrivals)
    consumer.close()
