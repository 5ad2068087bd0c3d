"""Rows of a changelog that no commit record follows: a worker died between two batches, without a transaction."""

import msgspec
import pytest

from streamkit.model.ids import TopicPartition
from streamkit.model.records import FetchedBatch
from streamkit.runtime import restore
from streamkit.runtime.tail import Tail
from streamkit.state.changelog import CommitRecord
from streamkit.state.keys import COMMIT_KEY
from streamkit.state.memory import MemoryStores
from streamkit.testing import Harness
from streamkit.testing.memory.batch import MemoryBatch
from streamkit.testing.memory.partition import MemoryPartition
from tests.runtime.pages import COUNTS, VIEWS, View, counting

PLACE = TopicPartition("changelog", 0)
RECORD = CommitRecord(positions={}, writer_id="w", generation=1, span=1, birth="b", fingerprint="f").encode()
END = (COMMIT_KEY, RECORD)


class Row(msgspec.Struct):
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int = 0
    headers: tuple[()] = ()


def batch(start: int, *rows: tuple[bytes, bytes | None], next_offset: int | None = None) -> FetchedBatch:
    records = [Row(start + index, key, value) for index, (key, value) in enumerate(rows)]
    return FetchedBatch(PLACE, records, start, next_offset or start + len(rows), 100)


def test_rows_wait_for_the_commit_record_of_their_span() -> None:
    tail = Tail(0, 0)
    tail.add(batch(0, (b"a", b"1"), (b"b", b"1")))
    assert (tail.rows, tail.whole_to, tail.at) == ({}, 0, 2)
    tail.add(batch(2, (b"a", b"2"), END, (b"b", b"3")))
    assert (tail.rows, tail.whole_to, tail.at) == ({b"a": b"2", b"b": b"1", COMMIT_KEY: RECORD}, 4, 5)
    assert tail.strays == {b"b"}


def test_an_offset_behind_a_marker_belongs_to_the_whole_spans() -> None:
    tail = Tail(0, 0)
    tail.add(batch(0, (b"a", b"1"), END, next_offset=3))
    assert (tail.whole_to, tail.strays) == (3, set())
    tail.add(batch(3, next_offset=4))
    assert tail.whole_to == 4


def test_rows_before_a_known_commit_record_need_not_wait() -> None:
    tail = Tail(0, 6)
    tail.add(batch(0, (b"a", b"1"), (b"b", b"1")))
    assert (len(tail.rows), tail.whole_to) == (2, 2)
    tail.taken()
    tail.add(batch(2, (b"c", b"1"), (b"d", None), (b"e", b"2"), END, (b"f", b"9")))
    assert (tail.rows, tail.whole_to) == ({b"c": b"1", b"d": None, b"e": b"2", COMMIT_KEY: RECORD}, 6)
    assert tail.strays == {b"f"}


def leave_strays(harness: Harness, *more: bytes) -> int:
    """Write another value of every count, and of more keys, behind its changelog: a worker died before its commit record."""
    written = 0
    for partition in changelogs(harness):
        batch = MemoryBatch()
        records = [record for stored in partition.batches for record in stored.records]
        keys = {record.key or b"" for record in records if (record.key or b"\xff")[0] < 4}
        for key in sorted(keys.union(more)):
            batch.append(len(batch.drafts), 0, key, b"\x01\x63", [])  # 99
        written += len(batch.drafts)
        if batch.drafts:
            harness._broker.transactions.append(partition.name, batch)
    return written


def changelogs(harness: Harness) -> list[MemoryPartition]:
    names = [name for name in harness._broker.topics.names() if "changelog" in name]
    return [partition for name in names for partition in harness._broker.topics.find(name).partitions]


@pytest.mark.parametrize("is_long", [False, True])
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_rows_without_their_commit_record_are_never_believed(
    guarantee: str, is_long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_long:  # look for the last commit record first, instead of keeping all in memory
        monkeypatch.setattr(restore, "ROWS_PER_WRITE", 0)
    with Harness(counting(), partitions=2, guarantee=guarantee) as harness:
        for _ in range(3):
            harness.send(VIEWS, View("home"), View("cart"))
            harness.run()
        harness.crash()
        assert leave_strays(harness) == 2
        harness.restart()  # its first commit says what is true of these keys, and nothing else
        harness.advance(1)
        for partition in changelogs(harness):
            partition.compact()
        harness.crash()
        harness.workers[0].stores = MemoryStores()
        harness.restart()
        harness.read(COUNTS)
        harness.send(VIEWS, View("home"), View("cart"))
        harness.run()
        assert sorted((count.page, count.views) for count in harness.read(COUNTS)) == [
            ("cart", 4),
            ("home", 4),
        ]
