"""Keyed count on Bytewax, Kafka in and out: state in memory, no commit, no changelog, no recovery store.

Usage: python -m tests.benchmarks.peers.bytewax_count BOOTSTRAP GROUP IN OUT RECORDS FOLDER
"""

import sys

import bytewax.operators as op
import orjson
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.testing import run_main

from tests.benchmarks.clock import mark

BOOTSTRAP, _, IN, OUT = sys.argv[1:5]
seen = False


def decode(message):
    global seen  # noqa: PLW0603 - the cheapest flag there is
    if not seen:
        seen = True
        mark("first")
    return message.key.decode(), orjson.loads(message.value)


def count(so_far, _value):
    new = (so_far or 0) + 1
    return new, new


def encode(result):
    key, number = result
    return KafkaSinkMessage(key.encode(), orjson.dumps({"c": number}))


consumer = {"log_level": "0", "fetch.wait.max.ms": "10", "max.partition.fetch.bytes": "8388608"}
producer = {
    "log_level": "0",
    "linger.ms": "5",
    "batch.num.messages": "10000",
    "batch.size": "1000000",
    "queue.buffering.max.messages": "1000000",
}
flow = Dataflow("count")
hits = op.input("in", flow, KafkaSource([BOOTSTRAP], [IN], tail=False, batch_size=5000, add_config=consumer))
counts = op.stateful_map("count", op.map("decode", hits, decode), count)
op.output("out", op.map("encode", counts, encode), KafkaSink([BOOTSTRAP], OUT, add_config=producer))
run_main(flow)
mark("last")
