"""Nexmark 12, processing time: how many bids of each user came in every ten seconds of the clock on the wall?

    SELECT bidder, count(*) AS bids, window_start, window_end
    FROM TABLE(TUMBLE(TABLE (SELECT *, PROCTIME() AS now FROM bid), DESCRIPTOR(now), INTERVAL '10' SECOND))
    GROUP BY bidder, window_start, window_end

The answer depends on when the records are read, so it is meant for live ones: this pipeline does not end by itself.
"""

import msgspec

import streamkit as sk
from examples.nexmark.events import bids


class UserBids(msgspec.Struct, frozen=True):
    """So many bids of a user were seen from `start` to `end`."""

    bidder: int
    bids: int
    start: int
    end: int


def seen(bidder: int, window: sk.Window, count: int) -> UserBids:
    """What is known of a user when the clock has passed the window."""
    return UserBids(bidder, count, window.start, window.end)


results = sk.topic("nexmark-q12", UserBids, key=int)
pipeline = sk.pipeline("nexmark-q12")
(
    pipeline.read(bids)
    .key_by(lambda bid: bid.bidder, key_type=int, name="bidder")
    .window(sk.tumbling(sk.seconds(10), time="processing"))
    .count(into=seen)
    .write(results)
)
