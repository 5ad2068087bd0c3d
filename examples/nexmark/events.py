"""The world of Nexmark: people register, open auctions and bid. Three topics, and a generator of what is in them.

The proportions are those of the benchmark: of 50 events one is a Person, three are an Auction, 46 are a Bid. Some
auctions and people are hot and get most of the bids. Records come out of order, by at most `DISORDER`.
"""

from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec

import streamkit as sk
from streamkit.model.duration import seconds, to_ms

# How much later than newer ones a record may come.
DISORDER = seconds(2)
# When the first event happens: 15 July 2015, as in the benchmark.
BEGIN_MS = 1_436_918_400_000
# Of every 50 events the first is a person, the next three are auctions, the others bids.
PERSONS, AUCTIONS, CYCLE = 1, 3, 50
# So many of each pass before others are hot; and so many of the newest are chosen from otherwise.
HOT_FOR, ACTIVE = 10, 20
FIRST_ID = 1_000
NAMES = ("ann", "bob", "cid", "dee", "eve", "fay", "gus", "hal")


class Person(msgspec.Struct, frozen=True, tag=True):
    """Somebody registers."""

    id: int
    name: str
    at: int


class Auction(msgspec.Struct, frozen=True, tag=True):
    """A seller puts something up for auction."""

    id: int
    seller: int
    reserve: int
    at: int


class Bid(msgspec.Struct, frozen=True, tag=True):
    """A bidder offers a price."""

    auction: int
    bidder: int
    price: int
    at: int


Event = Person | Auction | Bid

persons = sk.topic("nexmark-persons", Person, key=int, time="at", late=DISORDER)
auctions = sk.topic("nexmark-auctions", Auction, key=int, time="at", late=DISORDER)
bids = sk.topic("nexmark-bids", Bid, key=int, time="at", late=DISORDER)


def generate(count: int, *, seed: int = 0, per_second: int = 20) -> list[Event]:
    """The first so many events of a seed, in the order in which they arrive."""
    random = Random(seed)  # noqa: S311 - a world, not a secret
    delay_max = to_ms(DISORDER)
    happened = [_event(number, 1000 * number // per_second, random) for number in range(count)]
    return sorted(happened, key=lambda event: event.at + random.randint(0, delay_max))


def placed(events: list[Event]) -> Iterator[tuple[sk.Topic[Any], int, Event]]:
    """Where each event is written: its topic and its key."""
    for event in events:
        match event:
            case Person():
                yield persons, event.id, event
            case Auction():
                yield auctions, event.id, event
            case Bid():
                yield bids, event.auction, event


def _event(number: int, after_ms: int, random: Random) -> Event:
    at = BEGIN_MS + after_ms
    cycle, step = divmod(number, CYCLE)
    if step < PERSONS:
        return Person(FIRST_ID + cycle, f"{random.choice(NAMES)}-{cycle}", at)
    opened = cycle * AUCTIONS + min(step - PERSONS, AUCTIONS)
    if step < PERSONS + AUCTIONS:
        return Auction(FIRST_ID + opened, _one_of(cycle + 1, 3, random), random.randint(1, 1_000), at)
    # Prices rise all the time, and are few: two bids are sometimes the highest.
    price = after_ms // 1000 * 10 + random.randint(1, 100)
    return Bid(_one_of(opened, 1, random), _one_of(cycle + 1, 3, random), price, at)


def _one_of(known: int, hot: int, random: Random) -> int:
    """One of the ids that are known so far: `hot` of `hot + 1` times the one that is hot now."""
    if random.randint(0, hot):
        return FIRST_ID + (known - 1) // HOT_FOR * HOT_FOR
    return FIRST_ID + random.randrange(max(0, known - ACTIVE), known)
