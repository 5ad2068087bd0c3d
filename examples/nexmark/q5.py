"""Nexmark 5, hot items: which auctions had the most bids of the last ten seconds? Answered every two seconds.

SELECT auction, num, window_start, window_end FROM (
  SELECT *, RANK() OVER (PARTITION BY window_start, window_end ORDER BY num DESC) AS place FROM (
    SELECT auction, count(*) AS num, window_start, window_end
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(at), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY auction, window_start, window_end))
WHERE place = 1                                               -- auctions that tie are all hot
"""

import msgspec

import streamkit as sk
from examples.nexmark.events import bids


class HotItem(msgspec.Struct, frozen=True):
    """An auction with so many bids from `start` to `end`, and none had more."""

    auction: int
    bids: int
    start: int
    end: int


def counted(auction: int, window: sk.Window, count: int) -> list[HotItem]:
    """What is known of an auction when a window closes: for itself it is the hottest."""
    return [HotItem(auction, count, window.start, window.end)]


def hottest(some: list[HotItem], others: list[HotItem]) -> list[HotItem]:
    """Those with the most bids, or all if they tie."""
    if some[0].bids == others[0].bids:
        return some + others
    return max(some, others, key=lambda items: items[0].bids)


results = sk.topic("nexmark-q5", HotItem, key=int)
pipeline = sk.pipeline("nexmark-q5")
counts = (
    pipeline.read(bids, until="latest")
    .key_by(lambda bid: bid.auction, key_type=int, name="auction")
    .window(sk.hopping(sk.seconds(10), sk.seconds(2)))
    .count(into=counted)
)
(
    counts.key_by(lambda items: items[0].start, key_type=int, name="start")
    .window(
        sk.tumbling(sk.seconds(2))
    )  # results have the time of their window's last millisecond: those of one meet again
    .reduce(hottest)
    .flat_map(lambda items: items, to=HotItem, name="each")
    .write(results)
)
