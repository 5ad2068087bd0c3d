"""Answers come out whole and in order, however the bytes of a connection arrive."""

import asyncio
import itertools
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from streamkit.kafka import frames
from streamkit.kafka.frames import _Frames, receive_whole

LOOPS = (asyncio.new_event_loop, uvloop.new_event_loop)


def framed(answers: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(each)) + each for each in answers)


class Connection:
    """Poses as a connection of the client: notes its answers, and can be closed by one of them."""

    def __init__(self, writer: asyncio.StreamWriter | None = None, last: int | None = None) -> None:
        self._writer = writer
        self._last = last
        self.answers: list[bytes] = []
        self.changed = asyncio.Event()

    def connected(self) -> bool:
        return len(self.answers) != self._last

    def _handle_frame(self, answer: memoryview) -> None:
        self.answers.append(bytes(answer))
        self.changed.set()


class Before:
    """The protocol whose place is taken; it still hears of everything but data."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self.heard.append((name, *arguments))


def arrive(protocol: _Frames, data: bytes, sizes: list[int]) -> None:
    """Give the protocol its bytes in pieces of these sizes, over and over, as far as its buffer takes them."""
    at = 0
    for size in itertools.cycle(sizes):
        if at == len(data):
            return
        room = protocol.get_buffer(-1)
        assert len(room) > 0
        taken = min(size, len(room), len(data) - at)
        room[:taken] = data[at : at + taken]
        at += taken
        protocol.buffer_updated(taken)


@given(
    st.lists(st.binary(max_size=300), max_size=20),
    st.lists(st.integers(min_value=1, max_value=400), min_size=1, max_size=5),
    st.integers(min_value=4, max_value=64),
)
def test_any_cut_of_the_stream_gives_the_same_answers(
    answers: list[bytes], sizes: list[int], room: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "_ROOM_BYTES", room)
        patch.setattr(frames, "_KEPT_BYTES", 2 * room)
        connection = Connection()
        arrive(_Frames(connection, Before()), framed(answers), sizes)
        assert connection.answers == answers


def test_a_buffer_that_grew_is_kept_unless_it_grew_very_large() -> None:
    protocol = _Frames(Connection(), Before())
    assert len(protocol.get_buffer(-1)) == frames._ROOM_BYTES
    arrive(protocol, framed([bytes(1_000_000)]), [70_000])
    assert len(protocol.get_buffer(-1)) == 1_000_004
    arrive(protocol, framed([bytes(frames._KEPT_BYTES), b"next"]), [1 << 20])
    assert len(protocol.get_buffer(-1)) == frames._ROOM_BYTES


def test_nothing_is_handed_over_after_an_answer_closed_the_connection() -> None:
    connection = Connection(last=2)
    arrive(_Frames(connection, Before()), framed([b"a", b"b", b"c", b"d"]), [1000])
    assert connection.answers == [b"a", b"b"]


def test_a_size_below_zero_ends_the_connection() -> None:
    with pytest.raises(ValueError, match="-1 bytes"):
        arrive(_Frames(Connection(), Before()), struct.pack(">i", -1), [4])


def test_the_client_still_hears_of_everything_else() -> None:
    before = Before()
    protocol = _Frames(Connection(), before)
    lost = ConnectionResetError()
    protocol.pause_writing()
    protocol.resume_writing()
    protocol.eof_received()
    protocol.connection_lost(lost)
    assert before.heard == [
        ("pause_writing",),
        ("resume_writing",),
        ("eof_received",),
        ("connection_lost", lost),
    ]


def test_a_closed_connection_is_left_alone() -> None:
    receive_whole(Connection(None))


@pytest.mark.parametrize("new_loop", LOOPS, ids=lambda each: each.__module__)
def test_a_stream_that_was_read_before_goes_on_as_answers(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    large = bytes(range(256)) * 20_000

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await reader.readexactly(2)
        writer.write(framed([b"first", large, b""]))
        await reader.readexactly(2)
        writer.write(framed([b"last"])[:6])
        writer.close()

    async def check(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.readexactly(5) == b"hello"
        connection = Connection(writer)
        receive_whole(connection)
        receive_whole(connection)  # as before every request: the second time there is nothing to do
        writer.write(b"go")
        while len(connection.answers) < 3:
            connection.changed.clear()
            await asyncio.wait_for(connection.changed.wait(), 10)
        assert connection.answers == [b"first", large, b""]
        writer.write(b"on")
        # The end reaches the reader whose place was taken.
        assert await asyncio.wait_for(reader.read(), 10) == b""
        assert len(connection.answers) == 3
        writer.close()
        await writer.wait_closed()

    run_with_server(new_loop, talk, check)


def run_with_server(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    check: Callable[[int], Awaitable[None]],
) -> None:
    async def run() -> None:
        server: Any = await asyncio.start_server(talk, "127.0.0.1", 0)
        async with server:
            await check(server.sockets[0].getsockname()[1])

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())
