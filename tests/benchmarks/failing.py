"""What records that fail cost: the same input with none, some and all of them failing, on the in-memory broker.

    python -m tests.benchmarks.failing --records 92000

An operator with state raises before or after it has changed anything. The ratio to the clean run should be small, and the
same for twice as many records: a record that fails costs about what a record costs.
"""

import argparse
import logging
import statistics
import time
from typing import Literal

import msgspec
import structlog

import streamkit as sk
from streamkit.codec.values import value_codec
from streamkit.model.commit import Commit, Member, OutBatch
from streamkit.model.ids import TopicPartition
from streamkit.testing import Harness

PARTITIONS = 4
BATCH = 1_000
CLEAN_RUNS = 3
When = Literal["early", "late", "state"]


class Hit(msgspec.Struct):
    """One input record."""

    number: int
    page: str
    fails: bool


class Seen(msgspec.Struct):
    """One output record."""

    page: str
    hits: int


HITS = sk.topic("hits", Hit)
SEEN = sk.topic("seen", Seen)


class Counting(sk.Operator[str, Hit, Seen]):
    """Counts the hits of a page; fails as it is told to."""

    hits = sk.value(int, 0)
    odd = sk.value(list[int])

    def __init__(self, when: When) -> None:
        self.when = when

    def on_record(self, value: Hit, ctx: sk.Context[str, Seen]) -> None:
        if value.fails and self.when == "early":
            raise ValueError(f"no {value.number}")
        hits = self.hits.get() + 1
        self.hits.set(hits)
        ctx.emit(Seen(value.page, hits))
        if value.fails and self.when == "late":
            raise ValueError(f"no {value.number}")
        if value.fails:
            self.odd.set([1 << 70])


def run(records: int, failing: float, when: When, *, shuffles: bool) -> tuple[float, int]:
    """Seconds of work, and the dead letters."""
    pipeline = sk.pipeline("failing")
    stream = pipeline.read(HITS).key_by(lambda hit: hit.page) if shuffles else pipeline.read_keyed(HITS)
    stream.process(Counting(when), name="counting").write(SEEN)
    with Harness(pipeline, partitions=PARTITIONS) as harness:
        harness.scale(0)  # else part of the work is done while the input is sent
        send(harness, records, failing)
        started = time.perf_counter()
        harness.scale(1)
        harness.run()
        seconds = time.perf_counter() - started
        return seconds, len(harness.dead_letters())


def send(harness: Harness, records: int, failing: float) -> None:
    """Write the input in large batches."""
    encode = value_codec(Hit).encode
    for start in range(0, records, BATCH):
        batch = harness._writer.batch()
        for index, number in enumerate(range(start, min(start + BATCH, records))):
            page = f"page-{number % 997}"
            fails = failing > 0 and number % round(1 / failing) == 0
            batch.append(index, 1_600_000_000_000, page.encode(), encode(Hit(number, page, fails)), [])
        count = min(BATCH, records - start)
        out = OutBatch(TopicPartition("hits", start // BATCH % PARTITIONS), batch, count)
        harness._do(harness._writer.commit(Commit([out], {}, Member("", "", -1))))


def main() -> None:
    """Print one line for each way to fail."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--records", type=int, default=92_000)
    records = arguments.parse_args().records
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    for shuffles in (False, True):
        run(records, 0, "early", shuffles=shuffles)  # the first one pays for what is compiled
        clean_s = statistics.median(run(records, 0, "early", shuffles=shuffles)[0] for _ in range(CLEAN_RUNS))
        print(f"shuffles={shuffles}: clean {clean_s:.2f} s for {records} records")
        for when in ("early", "late", "state"):
            for failing in (0.01, 0.1, 1.0):
                seconds, letters = run(records, failing, when, shuffles=shuffles)
                print(
                    f"  {when:<6} {failing:>5.0%}  {seconds:7.2f} s  {seconds / clean_s:5.1f} x  {letters} letters"
                )


if __name__ == "__main__":
    main()
