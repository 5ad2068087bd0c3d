"""Answers come out whole and in order, however the bytes of a connection arrive."""

import asyncio
import itertools
import socket
import struct
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop
from aiokafka.errors import CorrelationIdError
from hypothesis import given
from hypothesis import strategies as st

from streamkit.kafka import frames
from streamkit.kafka.frames import _Frames, receive_whole
from streamkit.kafka.wire import Call

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
        self._requests: deque[tuple[Any, Any, Any]] = deque([(1, "a request of the client's own", None)])

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


class Socket:
    """Notes what the kernel was told to wait for."""

    def __init__(self) -> None:
        self.awaited = 1

    def setsockopt(self, level: int, option: int, size: int) -> None:
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_RCVLOWAT)
        self.awaited = size


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


@given(
    st.lists(st.binary(max_size=300), max_size=20),
    st.lists(st.integers(min_value=1, max_value=400), min_size=1, max_size=5),
)
def test_the_kernel_never_waits_for_more_than_is_still_to_come(
    answers: list[bytes], sizes: list[int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "_AWAITED_BYTES", 100)
        waited_on: Any = Socket()
        protocol = _Frames(Connection(), Before(), waited_on)
        ends = list(itertools.accumulate(4 + len(each) for each in answers))
        data, came, size = framed(answers), 0, itertools.cycle(sizes)
        while came < len(data):
            piece = min(next(size), len(data) - came)
            arrive(protocol, data[came : came + piece], [piece])
            came += piece
            begun = max((end for end in ends if end <= came), default=0)
            if came - begun <= 4:
                assert waited_on.awaited == 1
            else:
                assert waited_on.awaited == min(100, min(end for end in ends if end > came) - came)


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


@pytest.mark.skipif(sys.platform != "linux", reason="other systems wake us for every piece")
@pytest.mark.parametrize("new_loop", LOOPS, ids=lambda each: each.__module__)
def test_an_answer_in_many_pieces_wakes_us_twice(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    answers = [bytes(5_000), bytes(7_000)]
    woken = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readexactly(2)
            data = framed([answer])
            for at in range(0, len(data), 500):
                writer.write(data[at : at + 500])
                await asyncio.sleep(0.005)
        writer.close()

    async def check(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        connection = Connection(writer)
        receive_whole(connection)
        for number in range(len(answers)):
            writer.write(b"go")
            while len(connection.answers) == number:
                connection.changed.clear()
                await asyncio.wait_for(connection.changed.wait(), 10)
        assert connection.answers == answers
        await asyncio.wait_for(reader.read(), 10)
        writer.close()
        await writer.wait_closed()

    updated = _Frames.buffer_updated

    def count(protocol: _Frames, nbytes: int) -> None:
        nonlocal woken
        woken += 1
        updated(protocol, nbytes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Frames, "buffer_updated", count)
        run_with_server(new_loop, talk, check)
    assert len(answers) <= woken <= 2 * len(answers)


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


def receive(connection: Connection, message: bytes) -> None:
    """Let one answer arrive."""
    receiver = _Frames(connection, Before())
    data = framed([message])
    receiver.get_buffer(-1)[: len(data)] = data
    receiver.buffer_updated(len(data))


async def test_an_answer_goes_to_the_call_that_waits_for_it_and_no_other() -> None:
    call = Call(26, 5, b"", lambda fields: fields.int16(), flexible_answer=False)
    connection = Connection()
    first, second = (asyncio.get_running_loop().create_future() for _ in range(2))
    connection._requests = deque([(7, call, first), (8, call, second)])
    first.cancel()  # whoever asked has gone; the answer comes all the same
    receive(connection, b"\x00\x00\x00\x07\x00\x01")
    assert not second.done()
    receive(connection, b"\x00\x00\x00\x08\x00\x02")
    assert await second == 2
    assert not connection._requests


@pytest.mark.parametrize("message", [b"\x00\x00\x00\x08\x00\x01", b"\x00\x00\x00\x07"])
async def test_an_answer_to_another_request_or_one_cut_short_ends_the_connection(message: bytes) -> None:
    call = Call(26, 5, b"", lambda fields: fields.int16(), flexible_answer=False)
    connection = Connection()
    answer = asyncio.get_running_loop().create_future()
    connection._requests = deque([(7, call, answer)])
    with pytest.raises((CorrelationIdError, struct.error)):
        receive(connection, message)
    assert not answer.done()  # it fails when the connection ends
    assert len(connection._requests) == 1
