"""Nexmark 8, monitor new users: who opened an auction in the same ten seconds in which they registered?

    SELECT DISTINCT P.id, P.name, P.window_start, P.window_end
    FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(at), INTERVAL '10' SECOND)) AS P
    JOIN TABLE(TUMBLE(TABLE auction, DESCRIPTOR(at), INTERVAL '10' SECOND)) AS A
    ON P.id = A.seller AND P.window_start = A.window_start AND P.window_end = A.window_end

The join is a union: both kinds of records are brought together by the person, and a window sees what it got of each.
"""

import msgspec

import streamkit as sk
from examples.nexmark.events import Auction, Person, auctions, persons


class NewSeller(msgspec.Struct, frozen=True):
    """A person who registered and sold between `start` and `end`."""

    person: int
    name: str
    start: int
    end: int


class NewSellers(sk.WindowProcess[int, Person | Auction, NewSeller]):
    """Joins a person with the auctions of the same window."""

    def process(
        self, key: int, window: sk.Window, elements: list[Person | Auction], ctx: sk.WindowContext[NewSeller]
    ) -> None:
        """One answer, however many auctions there are."""
        if any(isinstance(each, Auction) for each in elements):
            for name in {each.name for each in elements if isinstance(each, Person)}:
                ctx.emit(NewSeller(key, name, window.start, window.end))


def person_of(record: Person | Auction) -> int:
    """Who registered, or who sells."""
    return record.id if isinstance(record, Person) else record.seller


def as_either(record: Person | Auction) -> Person | Auction:
    """The record as it is: said to be one of two, so that both streams have one type."""
    return record


results = sk.topic("nexmark-q8", NewSeller, key=int)
pipeline = sk.pipeline("nexmark-q8")
registered = pipeline.read(persons, until="latest").map(as_either, name="registered")
opened = pipeline.read(auctions, until="latest").map(as_either, name="opened")
per_person = registered.union(opened).key_by(person_of, name="person")
per_person.window(sk.tumbling(sk.seconds(10))).process(NewSellers()).write(results)
