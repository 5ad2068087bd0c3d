"""Nexmark 11, user sessions: how many bids did each user make before a pause of more than ten seconds?

SELECT bidder, count(*) AS bids, window_start, window_end
FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(at), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end
"""

import msgspec

import streamkit as sk
from examples.nexmark.events import bids


class UserSession(msgspec.Struct, frozen=True):
    """Bids of a user in a row: the first at `start`, none for ten seconds before `end`."""

    bidder: int
    bids: int
    start: int
    end: int


def ended(bidder: int, window: sk.Window, count: int) -> UserSession:
    """What is known of a session when it is over."""
    return UserSession(bidder, count, window.start, window.end)


results = sk.topic("nexmark-q11", UserSession, key=int)
pipeline = sk.pipeline("nexmark-q11")
(
    pipeline.read(bids, until="latest")
    .key_by(lambda bid: bid.bidder, key_type=int, name="bidder")
    .window(sk.session(sk.seconds(10)))
    .count(into=ended)
    .write(results)
)
