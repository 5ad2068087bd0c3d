"""The memory of a worker: one budget in bytes for all that its tasks keep, and what happens when it is used up.

    35 %   decoded values, timers and key maps: what is largest is emptied first, and read from the store again
    25 %   RocksDB's block cache, with the indexes and filters of all files
    20 %   RocksDB's write buffers
    10 %   committed rows that wait for the disk: beyond it no records are taken
    10 %   left free: sizes are estimates, allocators keep what they were given, compactions need buffers

The interpreter, the user's own objects, fetched batches and the open span are not in it.
"""

from collections.abc import Iterable
from typing import Protocol

import msgspec

_MIB = 1024 * 1024
# What RocksDB cannot do without, however small the budget.
ROCKS_BYTES_MIN = 4 * _MIB
# Caches that have outgrown their budget are emptied down to this share of it, or they would be at it again at once.
EMPTIED_TO = 0.75


class MemoryBudget(msgspec.Struct, frozen=True):
    """How many bytes a worker may use, and for what."""

    total_bytes: int = 256 * _MIB

    @property
    def cached_bytes(self) -> int:
        """Decoded values, timers and key maps of all tasks."""
        return self.total_bytes * 35 // 100

    @property
    def block_cache_bytes(self) -> int:
        """Blocks, indexes and filters of all files of RocksDB."""
        return max(ROCKS_BYTES_MIN, self.total_bytes * 25 // 100)

    @property
    def write_buffer_bytes(self) -> int:
        """The memtables of all databases."""
        return max(ROCKS_BYTES_MIN, self.total_bytes * 20 // 100)

    @property
    def waiting_bytes(self) -> int:
        """Committed rows that are not in their store yet."""
        return self.total_bytes * 10 // 100


class Cache(Protocol):
    """Something that can be had again."""

    def size_bytes(self) -> int:
        """About how much memory it takes."""
        ...

    def evict(self) -> None:
        """Give up what can be had again."""
        ...


def keep_within(bytes_max: int, caches: Iterable[Cache]) -> None:
    """Empty the largest of these caches until all together are well within the bound, if they are above it."""
    sizes = [(cache.size_bytes(), number, cache) for number, cache in enumerate(caches)]
    total = sum(size for size, _, _ in sizes)
    if total <= bytes_max:
        return
    for size, _, cache in sorted(sizes, key=lambda each: each[:2], reverse=True):
        if total <= bytes_max * EMPTIED_TO:
            return
        cache.evict()
        total -= size - cache.size_bytes()


class RowSize:
    """About how large the rows of a store are, from a few of those that were read or written."""

    __slots__ = ("average",)

    def __init__(self) -> None:
        self.average = 64.0

    def see(self, size_bytes: int) -> None:
        """One more row; the last dozens count."""
        self.average += (size_bytes - self.average) / 32

    def see_many(self, size_bytes: int, rows: int) -> None:
        """So many more rows, which take `size_bytes` together."""
        if rows:
            self.average += (size_bytes / rows - self.average) * min(1.0, rows / 32)
