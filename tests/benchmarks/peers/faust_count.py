"""Keyed count on Faust: table in memory, a changelog record per update, at least once, commits every second.

The best of eight settings tried: logging off, linger 50 ms, buffer 4,096, commits every second.
Usage: python -m tests.benchmarks.peers.faust_count BOOTSTRAP GROUP IN OUT RECORDS FOLDER
"""

import asyncio
import logging
import os
import sys

import faust

from tests.benchmarks.clock import mark

BOOTSTRAP, GROUP, IN, OUT, RECORDS, FOLDER = sys.argv[1:7]
SETTLE_S = 2.0  # linger and the last commit
sys.argv = sys.argv[:1]  # Faust reads it too
logging.disable(logging.WARNING)

app = faust.App(
    GROUP,
    broker=f"kafka://{BOOTSTRAP}",
    store="memory://",
    datadir=FOLDER,
    topic_allow_declare=False,
    topic_disable_leader=True,
    web_enabled=False,
    consumer_auto_offset_reset="earliest",
    topic_partitions=4,
    producer_linger=0.05,
    producer_max_batch_size=1_000_000,
    stream_buffer_maxsize=4096,
    broker_commit_interval=1.0,
)
source = app.topic(IN, key_type=bytes, value_serializer="json", partitions=4)
target = app.topic(OUT, key_type=bytes, value_serializer="json")
counts = app.Table("cnt", default=int, partitions=4, key_type=bytes)


def finish() -> None:
    mark("last")
    os._exit(0)


@app.agent(source)
async def count(stream):
    left = int(RECORDS)
    async for key, _value in stream.items():  # noqa: PERF102 - not a dict: this decodes the value too
        if left == int(RECORDS):
            mark("first")
        left -= 1
        counts[key] += 1
        await target.send(key=key, value={"c": counts[key]})
        if left == 0:
            asyncio.get_running_loop().call_later(SETTLE_S, finish)


app.conf.loglevel = "ERROR"
faust.Worker(app, loglevel="ERROR", override_logging=True).execute_from_commandline()
