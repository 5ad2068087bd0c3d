"""Pipelines whose functions work in place, and sometimes raise when they have already changed what they were given.

They tell of each key what `Tally` tells of it, so that the same reference holds.
"""

from collections.abc import Callable

import msgspec

import streamkit as sk
from tests.simulation.pipelines import RECENT, Event, Making, Out, Shape, fail_late, key_of

Flakes = dict[tuple[str, str, int], int]


class Pile(msgspec.Struct):
    """What is known of a key: one object from its first record on."""

    event: Event
    n: int = 0
    previous: int = 0
    last: dict[str, int] = {}
    recent: list[int] = []

    def add(self, event: Event) -> None:
        """One more record, without a copy of anything."""
        self.event = event
        self.n += 1
        self.previous = self.last.get(event.source, 0)
        self.last[event.source] = event.seq
        self.recent.append(event.seq)
        del self.recent[:-RECENT]


def pile_of(event: Event) -> Pile:
    """A pile of one record: what a reduce begins with."""
    pile = Pile(event)
    pile.add(event)
    return pile


def out_of(pile: Pile) -> Out:
    """What is told of a pile."""
    event = pile.event
    mark = pile.recent[-2] if pile.n % 2 == 0 else 0
    return Out(event.source, event.key, event.seq, pile.n, pile.previous, sum(pile.recent), mark)


def is_told_first(event: Event) -> bool:
    """Whether a record that fails does so only when it is told of: behind the step that has changed its pile."""
    return event.seq % 2 == 0


def piling(flakes: Flakes) -> Callable[[Pile, Pile], Pile]:
    """A function for `reduce` that raises when it is done."""

    def pile_up(so_far: Pile, value: Pile) -> Pile:
        so_far.add(value.event)
        if not is_told_first(value.event):
            fail_late(value.event, flakes)
        return so_far

    return pile_up


def telling(flakes: Flakes) -> Callable[[Pile], Out]:
    """What comes behind it; a pile of one record has not passed by the function of the reduce."""

    def tell(pile: Pile) -> Out:
        if pile.n == 1 or is_told_first(pile.event):
            fail_late(pile.event, flakes)
        return out_of(pile)

    return tell


class Piling(sk.Aggregator[Event, Pile, Out]):
    """The same as an aggregator; it raises in `add` or in `result`."""

    def __init__(self, flakes: Flakes) -> None:
        self.flakes = flakes

    def create(self) -> Pile:
        return Pile(Event("", "", 0, "fine"))

    def add(self, accumulator: Pile, value: Event, /) -> Pile:
        accumulator.add(value)
        if not is_told_first(value):
            fail_late(value, self.flakes)
        return accumulator

    def result(self, accumulator: Pile, /) -> Out:
        if is_told_first(accumulator.event):
            fail_late(accumulator.event, self.flakes)
        return out_of(accumulator)


def _reduce(making: Making) -> None:
    piles = making.events().key_by(key_of).map(pile_of).reduce(piling(making.flakes), name="piles")
    piles.map(telling(making.flakes)).write(making.out)


def _aggregate(making: Making) -> None:
    making.events().key_by(key_of).aggregate(Piling(making.flakes), name="piles").write(making.out)


IN_PLACE_SHAPES = (
    Shape("reduce", _reduce, fails_late=True),
    Shape("reduce_of_two", _reduce, sources=("left", "right"), fails_late=True),
    Shape("aggregate", _aggregate, fails_late=True),
)
