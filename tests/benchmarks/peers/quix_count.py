"""Keyed count on Quix Streams: RocksDB state, changelog, one output per record, commits every 100 ms.

Usage: python -m tests.benchmarks.peers.quix_count BOOTSTRAP GROUP IN OUT RECORDS FOLDER GUARANTEE
"""

import sys

from quixstreams import Application

from tests.benchmarks.clock import mark

BOOTSTRAP, GROUP, IN, OUT, RECORDS, FOLDER, GUARANTEE = sys.argv[1:8]

app = Application(
    broker_address=BOOTSTRAP,
    consumer_group=GROUP,
    auto_offset_reset="earliest",
    state_dir=f"{FOLDER}/state",
    loglevel="ERROR",
    use_changelog_topics=True,
    commit_interval=0.1,
    processing_guarantee=GUARANTEE,
    consumer_extra_config={
        "log_level": 0,
        "fetch.wait.max.ms": 10,
        "max.partition.fetch.bytes": 8388608,
        "queued.max.messages.kbytes": 65536,
    },
    producer_extra_config={
        "log_level": 0,
        "linger.ms": 5,
        "batch.num.messages": 10_000,
        "batch.size": 1_000_000,
    },
)
left = int(RECORDS)


def count(value: dict, state) -> dict:
    global left  # noqa: PLW0603 - the cheapest counter there is
    if left == int(RECORDS):
        mark("first")
    left -= 1
    if left == 0:
        app.stop()
    new = state.get("c", 0) + 1
    state.set("c", new)
    return {"c": new}


source = app.topic(IN, value_deserializer="json", key_deserializer="bytes")
target = app.topic(OUT, value_serializer="json", key_serializer="bytes")
app.dataframe(source).apply(count, stateful=True).to_topic(target)
app.run()
mark("last")
