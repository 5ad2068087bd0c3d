"""The Nexmark queries answer exactly what their definitions say, however the work is shared and whatever crashes.

Workers get a few records at a time, over a network that takes its time: event time advances while they run, windows
close one after the other, and a crash comes in the middle of it.
"""

import runpy
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from types import ModuleType
from typing import NamedTuple

import msgspec
import pytest

from examples.nexmark import events, q5, q7, q8, q11, q12, run
from examples.nexmark.events import BEGIN_MS, Bid, Event, generate
from streamkit.graph.pipeline import Pipeline
from streamkit.model.duration import to_ms
from streamkit.testing import Harness, harness
from streamkit.testing.memory import MemoryBroker, MemoryLog, SeededNetwork
from tests.nexmark import independent


class Load(NamedTuple):
    """How much there is to read, how dense it is, and how much of it a worker gets at once: about eight bids, or two
    of the people and auctions, which are few.
    """

    events: int
    per_second: int
    fetch_bytes: int

    def generate(self, seed: int) -> list[Event]:
        return generate(self.events, seed=seed, per_second=self.per_second)


LOADS = {q5: Load(800, 8, 600), q7: Load(800, 8, 600), q8: Load(5_000, 150, 150), q11: Load(800, 7, 600)}
DEFINITIONS = {q5: independent.q5, q7: independent.q7, q8: independent.q8, q11: independent.q11}
# How long each way of a request takes at most.
DELAY_S = 0.02
# What is sent at once where the clock on the wall matters, and how often.
# A multiple of the size of the windows.
START_MS = 1_600_000_000_000
BATCH, PAUSE_S = 120, 4.0
LINES_MAX = 59

every_query = pytest.mark.parametrize("query", LOADS, ids=lambda query: query.__name__.rsplit(".")[-1])

Begin = Callable[..., Harness]


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Send the events, then start slow workers: what is there when they start is what they read."""
    begun: list[Harness] = []

    def begin(
        pipeline: Pipeline, query: ModuleType, sent: list[Event], *, workers: int, partitions: int, seed: int
    ) -> Harness:
        with monkeypatch.context() as quick:
            quick.setattr(harness, "MemoryLog", MemoryLog)
            made = Harness(pipeline, workers=0, partitions=partitions, seed=seed, watermark_interval_s=0.01)
            begun.append(made)
            run.send(made, query, sent)
        monkeypatch.setattr(harness, "MemoryLog", partial(slow_log, seed, LOADS[query].fetch_bytes))
        made.scale(workers)
        return made

    yield begin
    for each in begun:
        each.close()


def slow_log(seed: int, fetch_bytes: int, broker: MemoryBroker) -> MemoryLog:
    network = SeededNetwork(Random(seed), delay_s_max=DELAY_S)
    return MemoryLog(broker, network, fetch_bytes_max=fetch_bytes)


def rows_of(results: list[msgspec.Struct]) -> list[independent.Row]:
    return sorted(msgspec.structs.astuple(each) for each in results)


@every_query
@pytest.mark.parametrize(("seed", "partitions", "workers"), [(1, 1, 1), (2, 4, 1), (3, 3, 2), (5, 5, 3)])
def test_the_rows_are_those_of_the_definition(query, seed, partitions, workers, begin: Begin) -> None:
    sent = LOADS[query].generate(seed)
    running = begin(query.pipeline, query, sent, workers=workers, partitions=partitions, seed=seed)
    running.run()
    assert rows_of(running.read(query.results)) == DEFINITIONS[query](sent)
    assert running.dead_letters() == []


@every_query
@pytest.mark.parametrize(("seed", "workers"), [(6, 1), (10, 2)])
def test_they_are_the_same_after_a_crash_in_the_middle(query, seed, workers, begin: Begin) -> None:
    sent = LOADS[query].generate(seed)
    expected = DEFINITIONS[query](sent)
    running = begin(query.pipeline, query, sent, workers=workers, partitions=3, seed=seed)
    results: list[msgspec.Struct] = []
    while not results:
        running.advance(0.05)
        results += running.read(query.results)
    assert len(results) < len(expected), "the crash must come while windows are open"
    running.crash(0)
    running.advance(0.05)
    running.restart(0)
    running.run()
    assert rows_of(results + running.read(query.results)) == expected
    assert running.dead_letters() == []


@every_query
def test_disorder_is_such_that_without_patience_rows_would_be_wrong(
    query, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What makes the tests above worth something."""
    read = Pipeline.read

    def read_impatiently(pipeline: Pipeline, topic, **options):
        rule = msgspec.structs.replace(topic.time, late_ms=0)
        return read(pipeline, msgspec.structs.replace(topic, time=rule), **options)

    with monkeypatch.context() as changed:
        changed.setattr(Pipeline, "read", read_impatiently)
        impatient = runpy.run_path(query.__file__)

    def is_right(seed: int) -> bool:
        sent = LOADS[query].generate(seed)
        running = begin(impatient["pipeline"], query, sent, workers=1, partitions=1, seed=seed)
        running.run()
        return rows_of(running.read(impatient["results"])) == DEFINITIONS[query](sent)

    assert not all(is_right(seed) for seed in range(2, 8))


@pytest.mark.parametrize(
    ("seed", "partitions", "workers", "crashes"),
    [(1, 1, 1, False), (2, 4, 2, False), (3, 4, 1, True), (4, 3, 2, True)],
)
def test_by_the_clock_every_bid_counts_in_the_window_in_which_it_was_seen(
    seed, partitions, workers, crashes
) -> None:
    seen: list[tuple[int, Event]] = []
    sent = generate(800, seed=seed)
    with Harness(q12.pipeline, workers=workers, partitions=partitions, seed=seed, start=START_MS) as running:
        for start in range(0, len(sent), BATCH):
            before = running.now_ms
            run.send(running, q12, sent[start : start + BATCH])
            running.run()
            assert before // independent.SIZE_MS == running.now_ms // independent.SIZE_MS
            seen += [(before, event) for event in sent[start : start + BATCH]]
            if crashes and start % (2 * BATCH) == 0:
                running.crash(0)
                running.restart(0)
            running.advance(PAUSE_S - (running.now_ms - before) / 1000)
        running.advance(12.0)
        expected = independent.q12(seen)
        assert len({start for _, _, start, _ in expected}) == 3
        assert rows_of(running.read(q12.results)) == expected


# Hand-made: what chance seldom brings.


def bid(auction: int, at: int, price: int = 1) -> Bid:
    return Bid(auction, 1, price, BEGIN_MS + at)


@pytest.mark.parametrize("query", [q5, q7], ids=["q5", "q7"])
def test_auctions_and_bids_that_tie_are_all_told(query, begin: Begin) -> None:
    sent = [bid(1, 0), bid(2, 9_999), bid(3, 10_000, 7), bid(3, 10_001), bid(4, 12_000, 7)]
    running = begin(query.pipeline, query, sent, workers=2, partitions=3, seed=0)
    running.run()
    expected = DEFINITIONS[query](sent)
    assert rows_of(running.read(query.results)) == expected
    ends = [row[-1] for row in expected]
    assert len(ends) > len(set(ends))


# The world and the modules.


def test_the_generator_keeps_its_promises() -> None:
    found = generate(5_000, seed=3)
    assert found == generate(5_000, seed=3) != generate(5_000, seed=4)
    kinds = [type(event).__name__ for event in found]
    assert [kinds.count(kind) for kind in ("Person", "Auction", "Bid")] == [100, 300, 4_600]
    delays, newest = [], 0
    for event in found:
        newest = max(newest, event.at)
        delays.append(newest - event.at)
    patience = to_ms(events.DISORDER)
    assert patience * 0.9 < max(delays) <= patience
    bids = independent.bids_of(found)
    assert 0.5 < sum(each.auction % events.HOT_FOR == 0 for each in bids) / len(bids) < 0.6


@pytest.mark.parametrize("query", [q5, q7, q8, q11, q12], ids=run.QUERIES)
def test_a_query_is_short_and_says_its_sql(query) -> None:
    assert isinstance(query.pipeline, Pipeline)
    assert "SELECT" in query.__doc__
    assert len(Path(query.__file__).read_text().splitlines()) <= LINES_MAX


def test_they_run_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    run.main(list(run.QUERIES))
    printed = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("  ")]
    counts = [len(compute(generate(run.EVENTS))) for compute in DEFINITIONS.values()]
    assert printed[:-1] == [
        f"{name}: {count} rows" for name, count in zip(run.QUERIES[:-1], counts, strict=True)
    ]
    assert printed[-1].startswith("q12: ")
