"""Tumbling event-time count on Bytewax, Kafka in and out: state in memory, no commit, no recovery store.

Usage: python -m tests.benchmarks.peers.bytewax_window BOOTSTRAP GROUP IN OUT RECORDS FOLDER
"""

import sys
from datetime import UTC, datetime, timedelta

import bytewax.operators as op
import bytewax.operators.windowing as win
import orjson
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.testing import run_main

from tests.benchmarks.clock import mark

BOOTSTRAP, _, IN, OUT = sys.argv[1:5]
WINDOW_S = 10
ALIGNED_TO = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)  # the same windows as ours: 1,700,000,000 s
seen = False


def decode(message):
    global seen  # noqa: PLW0603 - the cheapest flag there is
    if not seen:
        seen = True
        mark("first")
    return message.key.decode(), (
        datetime.fromtimestamp(message.timestamp[1] / 1000, UTC),
        orjson.loads(message.value),
    )


def encode(result):
    key, (window, number) = result
    start = (ALIGNED_TO + window * timedelta(seconds=WINDOW_S)).timestamp() * 1000
    return KafkaSinkMessage(key.encode(), orjson.dumps({"w": int(start), "c": number}))


consumer = {"log_level": "0", "fetch.wait.max.ms": "10", "max.partition.fetch.bytes": "8388608"}
producer = {
    "log_level": "0",
    "linger.ms": "5",
    "batch.num.messages": "10000",
    "batch.size": "1000000",
    "queue.buffering.max.messages": "1000000",
}
flow = Dataflow("window")
hits = op.input("in", flow, KafkaSource([BOOTSTRAP], [IN], tail=False, batch_size=5000, add_config=consumer))
# Its watermark also runs with the system clock, so with a shorter wait records are late whenever the process pauses.
clock = win.EventClock(lambda value: value[0], wait_for_system_duration=timedelta(hours=1))
windower = win.TumblingWindower(length=timedelta(seconds=WINDOW_S), align_to=ALIGNED_TO)
counts = win.fold_window(
    "count",
    op.map("decode", hits, decode),
    clock,
    windower,
    lambda: 0,
    lambda number, _value: number + 1,
    lambda one, other: one + other,
)
op.output("out", op.map("encode", counts.down, encode), KafkaSink([BOOTSTRAP], OUT, add_config=producer))
run_main(flow)
mark("last")
