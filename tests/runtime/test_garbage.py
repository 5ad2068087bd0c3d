"""Whatever somebody with nothing but WRITE on a source puts there: no worker ends of it, and no record beside it is lost."""

import struct
from collections.abc import Callable, Iterable
from typing import Any

import cramjam
import pytest

import streamkit as sk
from streamkit.errors import Misconfigured
from streamkit.graph.policy import ErrorPolicy
from streamkit.kafka import compression
from streamkit.kafka.record_batches import Chunk
from streamkit.model.counts import DEAD_LETTERS
from streamkit.model.ids import TopicPartition
from streamkit.model.records import FetchedBatch
from streamkit.testing import Harness, Received
from streamkit.testing.memory.admin import MemoryAdmin
from streamkit.testing.memory.partition import Read
from streamkit.testing.memory.reader import MemoryReader
from tests.kafka.test_careful import made, record
from tests.kafka.test_record_batches import ALL, patched

ZSTD = 4
WORDS = sk.topic("words", str)
SEEN = sk.topic("seen", str)
# The value of a record, as it lies in the log, and where it stands -> the batch that a reader gets instead.
Garble = Callable[[bytes, int], bytes]


def echo(policy: ErrorPolicy | None = None, *, is_bounded: bool = False) -> sk.Pipeline:
    pipeline = sk.pipeline("echo", on_error=policy or sk.dead_letter())
    pipeline.read(WORDS, until="latest" if is_bounded else None).write(SEEN)
    return pipeline


def bomb(base: int, size: int = 1 << 20) -> bytes:
    """A batch of a few hundred bytes, with a right checksum, that would fill the memory."""
    content = bytes(cramjam.zstd.compress(bytes(size)))
    data = bytearray(made(record(b"x"), base=base)[:61] + content)
    struct.pack_into(">i", data, 8, len(data) - 12)
    return patched(bytes(data), base, ZSTD)


def plain(value: bytes, offset: int) -> bytes:
    return made(record(value), base=offset)


def bombs_among_words(value: bytes, offset: int) -> bytes:
    return bomb(offset) if value == b"bomb" else plain(value, offset)


@pytest.fixture
def garbled(monkeypatch: pytest.MonkeyPatch) -> Callable[[Garble, str], None]:
    """Let readers of a topic get the bytes of real batches, garbled, in one fetch."""

    def arrange(garble: Garble, topic: str = WORDS.name) -> None:
        hand_out = MemoryReader._hand_out

        def broken(self: MemoryReader, partition: TopicPartition, read: Read) -> FetchedBatch:
            fetched = hand_out(self, partition, read)
            if partition.topic != topic:
                return fetched
            data = b"".join(garble(each.value or b"", each.offset) for each in fetched.records)
            taken = Chunk(partition, fetched.first_offset, data).take(ALL)
            self._positions[partition] = taken.next_offset  # the rest comes with the next fetch
            return taken

        monkeypatch.setattr(MemoryReader, "_hand_out", broken)

    monkeypatch.setattr("streamkit.kafka.record_batches.DECOMPRESSED_BYTES_MAX", 1 << 16)
    assert compression.DECOMPRESSED_BYTES_MAX == 1 << 26
    return arrange


def headers_of(letter: Received) -> dict[str, str]:
    return {
        name.removeprefix("streamkit."): (value or b"").decode() for name, value in letter.headers.items()
    }


def test_a_decompression_bomb_is_a_dead_letter_with_its_place(garbled: Callable[..., None]) -> None:
    garbled(bombs_among_words)
    with Harness(echo(), workers=0, partitions=1) as harness:
        for word in (b"a", b"b", b"bomb", b"c"):
            harness.send_bytes("words", word)
        harness.scale(1)
        harness.run()
        assert harness.read(SEEN) == ["a", "b", "c"]
        (letter,) = harness.dead_letters()
        assert (letter.key, letter.value) == (None, None)
        headers = headers_of(letter)
        assert headers["topic"] == "words"
        assert (headers["offset"], headers["next-offset"]) == ("2", "3")
        assert headers["unreadable"] == str(len(bomb(2)))
        assert "larger than 65536 bytes when decompressed" in headers["error"]
        harness.crash(0)
        harness.restart(0)
        harness.send_bytes("words", b"d")
        harness.run()
        assert harness.read(SEEN) == ["d"]
        assert harness.dead_letters() == []


def test_a_skipping_pipeline_counts_it(garbled: Callable[..., None]) -> None:
    garbled(bombs_among_words)
    with Harness(echo(sk.skip()), partitions=1) as harness:
        harness.send_bytes("words", b"bomb")
        harness.send_bytes("words", b"a")
        harness.run()
        assert harness.read(SEEN) == ["a"]
        assert harness.dead_letters() == []
        loop = harness.workers[0].loop
        assert loop is not None
        (task,) = loop.roster.tasks.values()
        assert task.committed_clock.counts[DEAD_LETTERS] == 1


def test_a_failing_pipeline_waits_at_it(garbled: Callable[..., None]) -> None:
    garbled(bombs_among_words)
    with Harness(echo(sk.fail()), partitions=1, restart_delay_last_s=1.0) as harness:
        harness.send_bytes("words", b"a")
        harness.run()
        harness.send_bytes("words", b"bomb")
        harness.send_bytes("words", b"b")
        harness.advance(60.0)
        assert harness.read(SEEN) == ["a"]
        loop = harness.workers[0].loop
        assert loop is not None
        assert [task.book.in_a_row > 3 for task in loop.roster.tasks.values()] == [True]


def test_a_header_name_that_is_no_text_costs_nothing(garbled: Callable[..., None]) -> None:
    garbled(lambda value, offset: made(record(value, name=b"\xff"), base=offset))
    with Harness(echo(), partitions=1) as harness:
        harness.send_bytes("words", b"a")
        harness.send_bytes("words", b"\xff no text either")
        harness.send_bytes("words", b"c")
        harness.run()
        assert harness.read(SEEN) == ["a", "c"]
        (letter,) = harness.dead_letters()
        assert letter.value == b"\xff no text either"
        assert letter.headers["\\xff"] == b"w"


def test_a_record_that_lies_about_its_length_takes_only_the_rest_of_its_batch(
    garbled: Callable[..., None],
) -> None:
    def lying(value: bytes, offset: int) -> bytes:
        return made(b"\x7f" + record(value), base=offset) if value == b"bad" else plain(value, offset)

    garbled(lying)
    with Harness(echo(), workers=0, partitions=1, slice_records=2) as harness:
        for word in (b"a", b"b", b"c", b"bad", b"d", b"e"):
            harness.send_bytes("words", word)
        harness.scale(1)
        harness.run()
        assert harness.read(SEEN) == ["a", "b", "c", "d", "e"]
        (letter,) = harness.dead_letters()
        assert headers_of(letter)["offset"] == "3"


@pytest.mark.parametrize("at", [2, 250])
@pytest.mark.parametrize("delta", [1, 2, 20, -1, 1_000])
@pytest.mark.parametrize("bad", [b"\xff fails", b"does not fail"])
def test_a_record_that_names_the_offset_of_another_takes_no_other_record_along(
    garbled: Callable[..., None], at: int, delta: int, bad: bytes
) -> None:
    def lying(value: bytes, offset: int) -> bytes:
        return made(record(value, delta), base=offset) if value == bad else plain(value, offset)

    garbled(lying)
    words = [b"%d" % number for number in range(300)]
    with Harness(echo(), workers=0, partitions=1) as harness:
        for word in (*words[:at], bad, *words[at:]):
            harness.send_bytes("words", word)
        harness.scale(1)
        harness.run()
        seen, letters = harness.read(SEEN), harness.dead_letters()
        assert [word for word in seen if word != "does not fail"] == [word.decode() for word in words]
        assert seen.count("does not fail") + len(letters) == 1
        assert [headers_of(letter)["offset"] for letter in letters] in ([], [str(at)])
        harness.crash(0)
        harness.restart(0)
        harness.run()
        assert harness.read(SEEN) == []


def test_a_record_that_names_an_offset_behind_the_end_of_a_bounded_input_hides_no_other_record(
    garbled: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lying(value: bytes, offset: int) -> bytes:
        return made(record(value, 500), base=offset) if value == b"bad" else plain(value, offset)

    async def ended_at_ten(
        self: MemoryAdmin, partitions: Iterable[TopicPartition], **how: Any
    ) -> dict[TopicPartition, int]:
        found = await end_offsets(self, partitions, **how)
        return {at: 10 if at.topic == WORDS.name else end for at, end in found.items()}

    garbled(lying)
    end_offsets = MemoryAdmin.end_offsets
    monkeypatch.setattr(MemoryAdmin, "end_offsets", ended_at_ten)
    with Harness(echo(is_bounded=True), workers=0, partitions=1) as harness:
        for number in range(15):  # five more came before the first fetch
            harness.send_bytes("words", b"bad" if number == 3 else b"%d" % number)
        harness.scale(1)
        harness.advance(10)
        seen, letters = harness.read(SEEN), harness.dead_letters()
        assert [word for word in seen if word != "bad"] == [str(n) for n in range(10) if n != 3]
        assert seen.count("bad") + len(letters) == 1


def test_a_shuffle_that_cannot_be_read_stops_the_worker(garbled: Callable[..., None]) -> None:
    pipeline = sk.pipeline("counted")
    pipeline.read(WORDS).key_by(lambda word: word, name="by_word").count().write(sk.topic("counts", int))
    shuffle = next(iter(pipeline.plan().shuffles()))
    garbled(lambda _value, offset: bomb(offset), shuffle)
    with Harness(pipeline, partitions=1, local_shuffle=False) as harness:
        harness.send(WORDS, "a")
        with pytest.raises(Misconfigured, match="cannot be read at offset 0"):
            harness.run()
