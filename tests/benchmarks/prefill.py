"""The input: 100-byte JSON values, 8-byte keys, in big batches, on the partition that Kafka's partitioner chooses."""

import random

from confluent_kafka import Producer

from tests.benchmarks.cluster import Cluster

VALUES = 5_000  # different ones: a constant payload would compress away and stay in every cache
VALUE_BYTES = 100
# Event time, in the record's own timestamp: it begins here, and so many records share a millisecond.
EPOCH_MS = 1_700_000_000_000
RECORDS_PER_MS = 20
_LETTERS = b"abcdefghijklmnopqrstuvwxyz"


def values() -> list[bytes]:
    """The same 5,000 values in every run."""
    chance = random.Random(1)
    return [_value(chance) for _ in range(VALUES)]


def _value(chance: random.Random) -> bytes:
    text = b'{"user":"u%06d","item":"i%06d","price":%.2f,"ts":1700000%06d,"pad":"' % (
        chance.randrange(10**6),
        chance.randrange(10**6),
        100 + chance.random() * 800,
        chance.randrange(10**6),
    )
    pad = bytes(chance.choice(_LETTERS) for _ in range(VALUE_BYTES - 2 - len(text)))
    return text + pad + b'"}'


def key(number: int) -> bytes:
    return b"k%07d" % number


def event_time(i: int) -> int:
    """The timestamp of record i."""
    return EPOCH_MS + i // RECORDS_PER_MS


def topic_name(run: str, records: int, keys: int) -> str:
    return f"bench-{run}-in-{records}-{keys}"


def prefill(cluster: Cluster, topic: str, records: int, keys: int) -> None:
    """Write record i with value i mod 5,000 and key i mod `keys`; each key lives on one partition."""
    cluster.create(topic)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "partitioner": "murmur2",
            "linger.ms": 50,
            "batch.num.messages": 10_000,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
            "enable.idempotence": True,
            "log_level": 0,
        }
    )
    contents, names = values(), [key(number) for number in range(keys)]
    for i in range(records):
        while True:
            try:
                producer.produce(topic, contents[i % VALUES], names[i % keys], timestamp=event_time(i))
                break
            except BufferError:
                producer.poll(0.05)
        if i % 10_000 == 0:
            producer.poll(0)
    producer.flush()
    written = sum(cluster.ends(topic).values())
    if written != records:
        raise RuntimeError(f"{topic} holds {written} records instead of {records}")
