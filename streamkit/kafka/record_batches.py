"""From the bytes of a fetch to records: cut at the batch headers, check every CRC, leave out what was aborted.

Comes after `fetch_calls.py`, which finds each partition's bytes in an answer, and before the runtime, which iterates
the records. The records themselves are the client's Cython objects: nothing here is done per record.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

from aiokafka.record.default_records import DefaultRecordBatch

from streamkit.errors import Misconfigured
from streamkit.kafka.careful import HEADER, Bytes, CarefulRecord, read_carefully
from streamkit.kafka.checksum import crc32c
from streamkit.kafka.compression import DECOMPRESSED_BYTES_MAX, decompress
from streamkit.model.ids import TopicPartition
from streamkit.model.records import FetchedBatch, LogRecord, Unreadable

_HEADER_BYTES = HEADER.size
_FRAME_BYTES = 12  # base offset and length, which the length does not count
_CHECKED_FROM = 21  # the CRC covers everything behind itself
_MAGIC_AT = 16
_MAGIC = 2
_LENGTH_AT = 8
_ATTRIBUTES_AT = 21

_CODEC = 0x07
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
# What must be looked at before the bytes can be given to the parser as they are.
_NOT_PLAIN = _CODEC | _LOG_APPEND_TIME | _CONTROL
_ABORT_MARKER = b"\x00\x00"
_ANY_OFFSET = 1 << 63

_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")

# start, end, base offset, next offset, CRC, attributes, producer id
Cut = tuple[int, int, int, int, int, int, int]
# a batch without compression, next offset
Plain = tuple[Bytes, int]
# producer id, first offset of the aborted transaction
Aborted = tuple[int, int]


class Chunk:
    """What one fetch brought of one partition: whole batches, cut but not opened until they are taken.

    Opening late keeps compressed data small in the buffer, and lets the caller bound what it opens at once.
    """

    __slots__ = (
        "_aborted",
        "_aborting",
        "_at",
        "_cuts",
        "_data",
        "next_offset",
        "partition",
        "position",
        "size",
    )

    def __init__(
        self, partition: TopicPartition, position: int, data: Bytes, aborted: Sequence[Aborted] = ()
    ) -> None:
        """Cut the bytes that were fetched at `position`.

        Raises:
            CorruptBatch: these are not record batches of a kind that we read.
        """
        self.partition = partition
        self.position = position
        self.size = len(data)
        self._data = memoryview(data)
        self._cuts = _cut(partition, position, data)
        self._at = 0
        # By first offset, the last one first, so that the next to come is popped from the end.
        self._aborted = sorted(aborted, key=_first_offset, reverse=True)
        self._aborting: set[int] = set()
        self.next_offset = self._cuts[-1][3] if self._cuts else position

    @property
    def done(self) -> bool:
        """Whether everything was taken."""
        return self._at == len(self._cuts)

    def take(self, size_max: int) -> FetchedBatch:
        """Open the next batches, at least one, until they hold `size_max` bytes.

        Good batches before a bad one are handed out first. One that cannot be decompressed is handed out by itself: it
        raises when it is iterated, and comes as `Unreadable` after that.

        Raises:
            CorruptBatch: the next batch is not what its writer has sent.
        """
        opened: list[Plain] = []
        size = 0
        first = self.position
        begun = self._at
        while self._at < len(self._cuts) and (size < size_max or self._at == begun):
            try:
                size += self._open(self._cuts[self._at], opened)
            except CorruptBatch:
                if self._at == begun:
                    raise
                break
            except _Unopened as unopened:
                if self._at == begun:
                    self._pass()
                    return self._unopened(first, unopened.args[0])
                break
            self._pass()
        records = _parsed(opened[0]) if len(opened) == 1 else chain.from_iterable(map(_parsed, opened))
        return FetchedBatch(self.partition, records, first, self.position, size, partial(_again, opened))

    def _pass(self) -> None:
        self.position = self._cuts[self._at][3]
        self._at += 1

    def _unopened(self, first: int, what: Unreadable) -> FetchedBatch:
        records = _refuse(self.partition, what)
        return FetchedBatch(
            self.partition, records, first, self.position, what.size_bytes, lambda _offset: iter((what,))
        )

    def _open(self, cut: Cut, opened: list[Plain]) -> int:
        start, end, base_offset, next_offset, crc, attributes, _ = cut
        batch: memoryview | bytearray = self._data[start:end]
        if crc32c(self._data[start + _CHECKED_FROM : end]) != crc:
            what = "its checksum does not match its data"
            raise CorruptBatch(self.partition, self.position, base_offset, what)
        if (self._aborted or self._aborting) and self._is_aborted(cut, batch):
            return 0
        if attributes & _NOT_PLAIN:
            if attributes & _CONTROL:
                return 0
            batch = _plain(batch, cut)
        opened.append((batch, next_offset))
        return len(batch)

    def _is_aborted(self, cut: Cut, batch: Bytes) -> bool:
        """Follow the aborted transactions along the log: each begins at its first offset and ends at its marker."""
        _, _, _, next_offset, _, attributes, producer_id = cut
        while self._aborted and self._aborted[-1][1] < next_offset:
            self._aborting.add(self._aborted.pop()[0])
        if attributes & _CONTROL:
            if producer_id in self._aborting and _is_abort_marker(batch):
                self._aborting.discard(producer_id)
            return True
        return bool(attributes & _TRANSACTIONAL) and producer_id in self._aborting


class CorruptBatch(Misconfigured):
    """A batch that was damaged since it was written: fetching it again may help, else a person must look at the log."""

    code = "SK560"

    def __init__(self, partition: TopicPartition, position: int, offset: int, what: str) -> None:
        super().__init__(
            f"the record batch at offset {offset} cannot be read: {what}",
            where=str(partition),
            hint="look at it with kafka-dump-log.sh; another replica may have it whole (kafka-leader-election.sh).\n"
            "To give it up, delete the log up to a later offset with kafka-delete-records.sh, then\n"
            "`streamkit offsets reset <pipeline> --accept-gap --execute` goes on behind it",
        )
        self.partition = partition
        # Where to fetch again.
        self.position = position


class _Unopened(Exception):
    """A batch whose data its writer compressed in a way that we do not open; holds the `Unreadable`."""


def _plain(batch: Bytes, cut: Cut) -> bytearray:
    """The same batch without compression and, under LogAppendTime, with the timestamps of its writer.

    Such a batch keeps the writer's base timestamp and the distance of each record to it; only a flag tells the
    parser to show the time of the append instead. The parser reads its header once, so this is done before.
    """
    _, _, base_offset, next_offset, _, attributes, _ = cut
    codec = attributes & _CODEC
    if codec:
        content = memoryview(batch)[_HEADER_BYTES:]
        try:
            plain = decompress(codec, content, room=_HEADER_BYTES, size_max=DECOMPRESSED_BYTES_MAX)
        except ValueError as error:
            reason = f"the batch at offset {base_offset} cannot be opened: {error}"
            max_timestamp = HEADER.unpack_from(batch)[8]
            raise _Unopened(
                Unreadable(base_offset, next_offset, len(batch), max_timestamp, reason)
            ) from error
        plain[:_HEADER_BYTES] = batch[:_HEADER_BYTES]
        _INT32.pack_into(plain, _LENGTH_AT, len(plain) - _FRAME_BYTES)
    else:
        plain = bytearray(batch)
    _INT16.pack_into(plain, _ATTRIBUTES_AT, attributes & ~(_CODEC | _LOG_APPEND_TIME))
    return plain


def _parsed(plain: Plain) -> Iterable[LogRecord]:
    parsed: Iterable[LogRecord] = DefaultRecordBatch(plain[0])
    return parsed


def _again(opened: list[Plain], offset: int) -> Iterator[LogRecord | Unreadable]:
    """The records of these batches from an offset on, read carefully."""
    for batch, next_offset in opened:
        for found in read_carefully(batch, next_offset) if next_offset > offset else ():
            if isinstance(found, Unreadable) or found.offset >= offset:
                yield found


def _refuse(partition: TopicPartition, what: Unreadable) -> Iterator[LogRecord]:
    """Stands for the records of a batch that cannot be opened."""
    raise Misconfigured(what.reason, where=str(partition), hint="look at it with kafka-dump-log.sh")
    yield  # makes it an iterator: it raises when the first record is asked for


def _cut(partition: TopicPartition, position: int, data: Bytes) -> list[Cut]:
    """Where each whole batch begins and ends; a cut-off batch at the end is left to the next fetch."""
    cuts: list[Cut] = []
    begun = position
    size = len(data)
    at = 0
    while size - at >= _HEADER_BYTES:
        base, length, _, magic, crc, attributes, last_delta, _, _, producer_id, *_ = HEADER.unpack_from(
            data, at
        )
        if magic != _MAGIC:
            break
        end = at + _FRAME_BYTES + length
        if end > size:
            return cuts
        next_offset = base + last_delta + 1
        if length < _HEADER_BYTES - _FRAME_BYTES or next_offset <= position:
            raise CorruptBatch(
                partition, begun, base, f"its header does not continue the log at offset {position}"
            )
        cuts.append((at, end, base, next_offset, crc, attributes, producer_id))
        at, position = end, next_offset
    if size - at > _MAGIC_AT and data[at + _MAGIC_AT] != _MAGIC:
        raise CorruptBatch(
            partition,
            begun,
            position,
            f"it has the old format {data[at + _MAGIC_AT]}, from before Kafka 0.11",
        )
    return cuts


def _is_abort_marker(batch: Bytes) -> bool:
    """Whether this control batch ends its transaction by an abort: key is version, then 0; a commit has 1."""
    record = next(read_carefully(batch, _ANY_OFFSET), None)
    return isinstance(record, CarefulRecord) and (record.key or b"")[2:4] == _ABORT_MARKER


def _first_offset(aborted: Aborted) -> int:
    return aborted[1]
