"""Nexmark: queries over people, auctions and bids, with which stream processors are compared.

    python -m examples.nexmark.run q5          # here, on the in-memory log; prints the first rows
    python -m examples.nexmark.run q5 q7 q8 q11 q12

    q5   hot items       the auctions with the most bids of ten seconds, every two    hopping windows, counted twice
    q7   highest bid     of every ten seconds, over all auctions                      window_all
    q8   new users       who registered and sold within the same ten seconds          union, WindowProcess
    q11  user sessions   bids of a user without a longer pause than ten seconds       session windows
    q12  bids per user   of every ten seconds on the clock                            processing time

The same modules run against a broker whose topics are there: `streamkit run examples.nexmark.q5:pipeline --workers 2`.
All but q12 read their topics up to where they end at the start, answer for every window, and stop.
"""

import sys
from importlib import import_module
from types import ModuleType

from examples.nexmark.events import Event, generate, placed
from streamkit.testing import Harness

QUERIES = ("q5", "q7", "q8", "q11", "q12")
EVENTS, ROWS = 1_000, 5
# Queries over the clock on the wall: records are sent while they run, a batch at a time.
LIVE = {"q12"}
BATCH, PAUSE_S = 250, 7.0


def main(names: list[str]) -> None:
    """Run each of the queries over the same events."""
    for name in names:
        rows = run(import_module(f"examples.nexmark.{name}"), generate(EVENTS), is_live=name in LIVE)
        print(f"{name}: {len(rows)} rows")
        for row in rows[:ROWS]:
            print(f"  {row}")


def run(query: ModuleType, events: list[Event], *, is_live: bool) -> list[object]:
    """The results of a query, of two workers."""
    with Harness(query.pipeline, workers=2 if is_live else 0) as harness:
        if not is_live:
            send(harness, query, events)
            harness.scale(2)
            harness.run()
        for start in range(0, len(events) if is_live else 0, BATCH):
            send(harness, query, events[start : start + BATCH])
            harness.advance(PAUSE_S)
        harness.advance(10.0)
        return harness.read(query.results)


def send(harness: Harness, query: ModuleType, events: list[Event]) -> None:
    """Write the events that the query reads."""
    sources = query.pipeline.plan().sources()
    for topic, key, event in placed(events):
        if topic.name in sources:
            harness.send(topic, event, key=key)


if __name__ == "__main__":
    main(sys.argv[1:] or list(QUERIES))
