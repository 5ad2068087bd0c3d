"""pace: how many records or timers are run before the next look at the clock.

What users' code costs is not known before it has run: two microseconds or twenty-five milliseconds. So the first chunk is
small and the next ones grow while they stay within their aim; the clock is looked at once per chunk, never per record.
Only where a chunk has once taken too long, nothing is run together with anything else (`task/singly.py`).
"""

# What a chunk should take at most: a tenth of a turn, so that a turn ends soon after its time is over.
CHUNK_MS = 10
# How long records and timers may keep the event loop; then replies, commits and the other partitions get their turn.
TURN_MS = 100
# The first chunk: whatever a record takes, it alone has taken it. After eight more of quick ones it is the largest.
CHUNK_FIRST = 1
# The largest: the records of a chunk are objects that should still be in the processor's cache when their turn comes.
# Decoding and encoding alone took 0.57 us a record in chunks of 250, 0.62 in chunks of 500 and more.
CHUNK_LAST = 250


class Pace:
    """The size of the next chunk, learnt from what the last ones took."""

    __slots__ = ("is_quick", "is_single", "size")

    def __init__(self) -> None:
        self.size = CHUNK_FIRST
        # True while chunks are of one.
        self.is_single = False
        # Whether the last chunk stayed within its aim.
        self.is_quick = False

    def keep_single(self) -> None:
        """From now on everything is run by itself."""
        self.is_single = True
        self.size = 1

    def grow_again(self) -> None:
        """Chunks may grow, from one on."""
        self.is_single = False

    def learn(self, count: int, took_ms: int) -> None:
        """So many took so long. Only a chunk that was full says that a larger one would fit too."""
        self.is_quick = took_ms <= CHUNK_MS
        if self.is_single:
            return
        if took_ms > CHUNK_MS:
            self.size = max(1, count * CHUNK_MS // took_ms)
        elif count >= self.size:
            self.size = min(2 * count, CHUNK_LAST)
