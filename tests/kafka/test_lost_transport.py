"""A transport that was closed a moment ago: uvloop raises RuntimeError when somebody writes to it, asyncio says nothing."""

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError

from streamkit.kafka.connection import NoAnswer
from streamkit.kafka.frames import ask
from streamkit.kafka.wire import Call


class Closed:
    def write(self, _data: bytes) -> None:
        raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")


async def test_a_request_to_it_has_no_answer() -> None:
    closed: list[Any] = []
    connection = SimpleNamespace(
        _versions={26: (0, 5)},
        _next_correlation_id=lambda: 1,
        _writer=Closed(),
        _requests=[],
        close=lambda *, reason: closed.append(reason),
    )
    with pytest.raises(KafkaConnectionError) as failed:
        ask(connection, Call(26, 5, b"", lambda fields: fields.int16()))
    assert isinstance(failed.value, NoAnswer)
    assert len(closed) == 1
    assert connection._requests == []
