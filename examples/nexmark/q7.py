"""Nexmark 7, highest bid: the bids with the highest price of every ten seconds.

SELECT auction, bidder, price, at, window_end FROM (
  SELECT *, RANK() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) AS place
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(at), INTERVAL '10' SECOND)))
WHERE place = 1                                               -- bids that tie are all the highest
"""

import msgspec

import streamkit as sk
from examples.nexmark.events import Bid, bids


class HighestBid(msgspec.Struct, frozen=True):
    """A bid that none was above in the window that ends at `end`."""

    auction: int
    bidder: int
    price: int
    at: int
    end: int


class Highest(sk.Aggregator[Bid, list[Bid], list[Bid]]):
    """Those with the highest price."""

    def create(self) -> list[Bid]:
        """No bid yet."""
        return []

    def add(self, accumulator: list[Bid], value: Bid, /) -> list[Bid]:
        """Replace them, join them, or go by."""
        highest = accumulator[0].price if accumulator else 0
        if value.price < highest:
            return accumulator
        return [*accumulator, value] if value.price == highest else [value]

    def result(self, accumulator: list[Bid], /) -> list[Bid]:
        """All that are left."""
        return accumulator


def rows(_key: str, window: sk.Window, highest: list[Bid]) -> list[HighestBid]:
    """The answer of a window."""
    return [HighestBid(bid.auction, bid.bidder, bid.price, bid.at, window.end) for bid in highest]


results = sk.topic("nexmark-q7", HighestBid)
pipeline = sk.pipeline("nexmark-q7")
(
    pipeline.read(bids, until="latest")
    .window_all(sk.tumbling(sk.seconds(10)))
    .aggregate(Highest(), into=rows)
    .flat_map(lambda each: each, to=HighestBid, name="each")
    .write(results)
)
