"""Asking the broker that coordinates a group or a writer: it moves, it loads, it is busy; the question stays.

Callers bound the whole wait by a deadline of their own (`asyncio.timeout`); nothing here gives up by itself.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from aiokafka.errors import KafkaError

from streamkit.kafka.connection import Connection, NoAnswer, Purpose
from streamkit.kafka.error_codes import ErrorCode, Reaction, Table, error_for, name_of, worst
from streamkit.kafka.transaction_calls import Reply
from streamkit.kafka.transaction_port import NOBODY, Producer
from streamkit.kafka.wire import Call

# A busy coordinator is done within a millisecond or two; one that moved or loads takes far longer.
PAUSE_BUSY_FIRST_S = 0.002
PAUSE_BUSY_LAST_S = 0.05
PAUSE_MOVED_FIRST_S = 0.02
PAUSE_MOVED_LAST_S = 0.25
# How often a group in the middle of a round is asked again before we count as its former member.
REBALANCE_TRIES_MAX = 40


# After which verdicts the same question is asked again.
_STRICT = frozenset({Reaction.AGAIN})
_PATIENT = frozenset({Reaction.AGAIN, Reaction.MOVED, Reaction.DOUBT})


class Judged(NamedTuple):
    """An answer and what it means; no answer at all is DOUBT."""

    verdict: Reaction
    code: int
    identity: Producer = NOBODY


class Backoffs:
    """Growing pauses between tries, short while somebody is merely busy."""

    __slots__ = ("_busy_s", "_moved_s")

    def __init__(self) -> None:
        self._busy_s = PAUSE_BUSY_FIRST_S
        self._moved_s = PAUSE_MOVED_FIRST_S

    async def wait(self, verdict: Reaction) -> None:
        """Wait as long as this verdict asks for."""
        if verdict is Reaction.AGAIN:
            await asyncio.sleep(self._busy_s)
            self._busy_s = min(2 * self._busy_s, PAUSE_BUSY_LAST_S)
        else:
            await asyncio.sleep(self._moved_s)
            self._moved_s = min(2 * self._moved_s, PAUSE_MOVED_LAST_S)


class Coordinator:
    """The broker responsible for one key: looked up when needed, forgotten when it moved or went silent."""

    def __init__(
        self, connection: Connection, find: Callable[[], Awaitable[int]], lane: Purpose, name: str
    ) -> None:
        self._connection = connection
        self._name = name
        self._find = find
        self._lane = lane
        self._node: int | None = None
        # Why we have to ask again, until that is over: what a person wants to know when the deadline passes.
        self.trouble = ""

    async def node(self) -> int:
        """The broker itself; raises what the client raises."""
        if self._node is None:
            self._node = await self._find()
        return self._node

    async def ask(self, call: Call[Reply], table: Table, doing: str) -> Judged:
        """Ask once."""
        try:
            reply = await self._connection.send(await self.node(), call, self._lane)
        except NoAnswer as error:
            self._node = None
            self.trouble = f"{doing} got no answer: {type(error).__name__} {error}"
            return Judged(Reaction.DOUBT, ErrorCode.REQUEST_TIMED_OUT)
        except KafkaError as error:  # the look-up was refused; it carries a code like any other answer
            reply = Reply((getattr(error, "errno", ErrorCode.UNKNOWN_SERVER_ERROR),))
        if reply.codes and not any(reply.codes):
            self.trouble = ""
            return Judged(Reaction.DONE, ErrorCode.OK, reply.identity)
        verdict, code = worst(reply.codes, table)
        self.trouble = f"{doing} answered {name_of(code)}"
        if verdict is Reaction.MOVED:
            self._node = None
        return Judged(verdict, code, reply.identity)

    @property
    def known(self) -> int | None:
        """The broker, if it was looked up and has answered since."""
        return self._node

    async def settle(
        self, call: Call[Reply], table: Table, doing: str, *, outlives_moves: bool = True
    ) -> Producer:
        """Ask until the answer is final. Only for requests that may be repeated without harm.

        With `outlives_moves=False` a coordinator that is lost, or is not the one any more, is final too.

        Raises:
            Fenced, Misconfigured, WriterDead: by the table.
        """
        pauses = Backoffs()
        rebalances = 0
        while True:
            judged = await self.ask(call, table, doing)
            if judged.verdict is Reaction.DONE:
                return judged.identity
            if judged.code == ErrorCode.REBALANCE_IN_PROGRESS:
                rebalances += 1
                if rebalances > REBALANCE_TRIES_MAX:
                    raise error_for(Reaction.FENCED, judged.code, doing=doing, where=self._name)
            if judged.verdict not in (_PATIENT if outlives_moves else _STRICT):
                raise error_for(judged.verdict, judged.code, doing=doing, where=self._name)
            await pauses.wait(judged.verdict)
