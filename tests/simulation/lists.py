"""Pipelines that keep lists, and send every other result out by a side.

They tell of each key what `Tally` tells of it, so that the same reference holds. Lists grow, are emptied, are replaced by
shorter and by longer ones, and fail when they have been changed.
"""

import streamkit as sk
from tests.simulation.pipelines import (
    RECENT,
    TOO_LARGE,
    Event,
    Making,
    Out,
    Retally,
    Shape,
    bucket_of,
    fail_late,
    key_of,
)

# A list of this many numbers is emptied.
CHAPTER = 7
EVEN = sk.side("even", Out)


class Listing(sk.Operator[str, Event, Out]):
    """Counts the records of a key by the length of lists; fails late, after state and both outputs were touched."""

    sides = (EVEN,)
    chapters = sk.value(int, 0)
    chapter = sk.list_of(int)
    last = sk.map_of(str, int)
    recent = sk.list_of(int)
    # One number after every other record.
    mark = sk.list_of(int)
    # Never added to by a record that may stay, and never emptied: what cannot be stored is found.
    bulk = sk.list_of(int | str)

    def __init__(self, flakes: dict[tuple[str, str, int], int]) -> None:
        self.flakes = flakes

    def on_record(self, value: Event, ctx: sk.Context[str, Out]) -> None:
        self.chapter.add(value.seq)
        n = self.chapters.get() * CHAPTER + len(self.chapter)
        if len(self.chapter) == CHAPTER:
            self.chapter.clear()
            self.chapters.set(self.chapters.get() + 1)
        previous = self.last.get(value.source, 0)
        self.last.put(value.source, value.seq)
        self.recent.replace([*self.recent, value.seq][-RECENT:])
        mark = sum(self.mark)
        if mark:
            self.mark.clear()
        else:
            self.mark.extend([value.seq])
        out = Out(value.source, value.key, value.seq, n, previous, sum(self.recent), mark)
        if n % 2 == 0:
            ctx.emit_to(EVEN, out)
        else:
            ctx.emit(out)
        fail_late(value, self.flakes)
        if value.fate == "unwritable":
            self.bulk.add(1 << 70)
        if value.fate == "too_large":
            self.bulk.add(TOO_LARGE)


def _listed(making: Making) -> sk.Keyed[str, Out]:
    listed = making.events().key_by(key_of).process(Listing(making.flakes), name="listing")
    return listed.union(listed.side(EVEN))


def _lists(making: Making) -> None:
    _listed(making).write(making.out)


def _lists_and_buckets(making: Making) -> None:
    _listed(making).key_by(bucket_of).process(Retally(), name="retally").write(making.out)


LIST_SHAPES = (
    Shape("lists", _lists, fails_late=True, spoils=True),
    Shape("lists_of_two", _lists, sources=("left", "right"), fails_late=True, spoils=True),
    Shape("lists_and_buckets", _lists_and_buckets, fails_late=True, spoils=True, has_buckets=True),
)
