"""Requests written at once, answers received whole: from the socket into one buffer, and from there to who waits.

The client's connections read through an `asyncio.StreamReader`: what arrives is copied three times, into memory that
is new each time, and a task is woken for every piece. At a hundred megabytes a second that is more than all the rest
of a fetch. After a connection is made and authenticated, `receive_whole` puts itself in the reader's place; the end
of the connection, and the flow of what we send, stay with the client.

A broker sends a fetch in many pieces, two for every partition. Once the size of an answer is known, the kernel is told
to wake us when the rest of it is there.
"""

import asyncio
import socket
import struct
import sys
import time
from typing import Any, TypeVar

from aiokafka.conn import CloseReason
from aiokafka.errors import CorrelationIdError, KafkaConnectionError

from streamkit.kafka.wire import Call

R = TypeVar("R")

# How we name ourselves in every request.
CLIENT_ID = "streamkit"
_CLIENT = CLIENT_ID.encode()
_SIZE = struct.Struct(">i")
# What the buffer has at first: room for every answer but those that bring records.
_ROOM_BYTES = 64 * 1024
# A buffer that grew beyond this is not kept for the next answer.
_KEPT_BYTES = 8 * 1024 * 1024
# Of a large answer so much is waited for at a time: taking it frees the way for what follows.
_AWAITED_BYTES = 256 * 1024


def receive_whole(connection: Any) -> None:
    """Let this connection of the client, which has no request under way, receive its answers as told above."""
    writer = connection._writer  # noqa: SLF001 - pinned by the surface test
    if writer is None:  # closed already, which its user is about to learn
        return
    transport = writer.transport
    before = transport.get_protocol()
    if isinstance(before, _Frames):
        return
    transport.pause_reading()  # a transport looks at the kind of its protocol when it starts to read
    transport.set_protocol(_Frames(connection, before, _waitable(transport)))
    transport.resume_reading()


def ask(connection: Any, call: Call[R]) -> "asyncio.Future[R]":
    """Send a request on a connection that is up; the future gets the answer, or the error that ends the connection."""
    call.require(connection._versions)  # noqa: SLF001 - pinned by the surface test
    number = connection._next_correlation_id()  # noqa: SLF001 - as above
    try:
        connection._writer.write(call.message(number, _CLIENT))  # noqa: SLF001 - as above
    except RuntimeError as error:  # uvloop's word for a transport that was closed a moment ago
        connection.close(reason=CloseReason.CONNECTION_BROKEN)
        raise KafkaConnectionError(str(error)) from error
    answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
    connection._requests.append((number, call, answer))  # noqa: SLF001 - as above
    return answer


class _Frames(asyncio.BufferedProtocol):
    """Cuts what arrives into answers: a size in four bytes, then so many bytes.

    `waited_on` is the socket, where the kernel can be told how many bytes to wait for.
    """

    def __init__(self, connection: Any, before: Any, waited_on: socket.socket | None = None) -> None:
        self._connection = connection
        self._before = before
        self._room = memoryview(bytearray(_ROOM_BYTES))
        self._filled = 0
        self._socket = waited_on
        self._awaited = 1

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - what we know is better than a hint
        """Where the next bytes go: behind those that wait for the rest of their answer."""
        return self._room[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Hand over every answer that is complete, and keep the beginning of the next one."""
        self._filled += nbytes
        at, wanted = 0, _SIZE.size
        while self._filled - at >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._room, at)
            if size < 0:  # makes the transport end the connection, as any error here
                raise ValueError(f"an answer of {size} bytes")
            wanted = _SIZE.size + size
            if self._filled - at < wanted:
                break
            self._settle(self._room[at + _SIZE.size : at + wanted])
            if not self._connection.connected():  # this answer led to its end
                return
            at += wanted
            wanted = _SIZE.size
        self._keep(at, wanted)
        self._await(wanted - self._filled if self._filled > _SIZE.size else 1)

    def _settle(self, message: memoryview) -> None:
        """Give an answer to the call that waits for it; the client has requests of its own.

        An answer that cannot be read ends the connection, and that fails the call, as any request under way.
        """
        connection = self._connection
        number, call, answer = connection._requests[0]  # noqa: SLF001 - as above
        if not isinstance(call, Call):
            connection._handle_frame(message)  # noqa: SLF001 - as above
            return
        (found,) = _SIZE.unpack_from(message)
        if found != number:
            raise CorrelationIdError(f"asked as {number}, answered as {found}")
        if not answer.done():
            answer.set_result(call.answer(bytes(message)))
        connection._last_action = time.monotonic()  # noqa: SLF001 - as above
        connection._requests.popleft()  # noqa: SLF001 - as above

    def _await(self, size: int) -> None:
        """Be woken when so many bytes are there; the other side has promised them."""
        size = min(size, _AWAITED_BYTES)
        if size != self._awaited and self._socket is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
            self._awaited = size

    def _keep(self, at: int, wanted: int) -> None:
        """Move what is left to the front of a buffer that has room for all of it."""
        left = self._room[at : self._filled]
        self._filled = len(left)
        if wanted > len(self._room) or (not left and len(self._room) > _KEPT_BYTES):
            self._room = memoryview(bytearray(max(wanted, _ROOM_BYTES)))
            self._room[: len(left)] = left
        elif at and left:
            self._room[: len(left)] = bytes(left)

    def pause_writing(self) -> None:
        """The other side takes no more for now."""
        self._before.pause_writing()

    def resume_writing(self) -> None:
        """The other side takes more again."""
        self._before.resume_writing()

    def eof_received(self) -> bool | None:
        """The other side has ended; the client closes, and fails what is under way."""
        ended: bool | None = self._before.eof_received()
        return ended

    def connection_lost(self, exc: Exception | None) -> None:
        """As above."""
        self._before.connection_lost(exc)


def _waitable(transport: Any) -> socket.socket | None:
    """The socket, if bytes on it are bytes of answers: under TLS part of an answer may have left it already."""
    if sys.platform != "linux" or transport.get_extra_info("ssl_object") is not None:
        return None
    found: socket.socket | None = transport.get_extra_info("socket")
    return found
