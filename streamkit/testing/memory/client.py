"""How the parts of one client reach the broker: through its network, with the loop's clock."""

import asyncio
import math
from collections.abc import Callable
from typing import TypeVar

from streamkit.errors import LogGap, Misconfigured, Retry, StreamkitError
from streamkit.kafka.missing import no_topic
from streamkit.model.ids import TopicPartition
from streamkit.testing.memory.broker import MemoryBroker
from streamkit.testing.memory.network import Network, NoReply
from streamkit.testing.memory.refusal import ErrorCode, Refused
from streamkit.testing.virtual_time import in_process

R = TypeVar("R")

REQUEST_TIMEOUT_S = 10.0


class Client:
    """What a log's readers, writers, memberships and admins share."""

    def __init__(self, broker: MemoryBroker, network: Network) -> None:
        self.broker = broker
        self.network = network
        self._rings_at = math.inf

    async def ask(self, what: str, apply: Callable[[], R], timeout_s: float = REQUEST_TIMEOUT_S) -> R:
        """Run plain code at the broker, in the broker's time.

        Raises:
            Refused: the broker says no.
            NoReply: nothing came back.
        """

        def arrive() -> R:
            loop = asyncio.get_running_loop()
            self.broker.tick(loop.time())
            try:
                return apply()
            finally:
                self._set_alarm(loop)

        return await self.network.call(what, arrive, timeout_s)

    async def ask_judged(self, what: str, apply: Callable[[], R]) -> R:
        """The same, for who only asks.

        Raises:
            Misconfigured, LogGap: the broker says no.
            Retry: nothing came back.
        """
        try:
            return await self.ask(what, apply)
        except Refused as refused:
            raise judge(refused) from None
        except NoReply as error:
            raise unanswered(error) from None

    def _set_alarm(self, loop: asyncio.AbstractEventLoop) -> None:
        """Make sure that the broker hears of its next deadline even if nobody calls it."""
        deadline = self.broker.deadline
        if deadline < self._rings_at:
            self._rings_at = deadline
            loop.call_at(deadline, self._ring, loop, deadline, context=in_process(None))

    def _ring(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        # An earlier alarm may have been set meanwhile; then this one is only an extra look at the clock.
        if deadline == self._rings_at:
            self._rings_at = math.inf
        self.broker.tick(max(deadline, loop.time()))
        self._set_alarm(loop)


def judge(refused: Refused) -> StreamkitError:
    """What a reader or an admin makes of a refusal: a person must act."""
    match refused.code:
        case ErrorCode.OFFSET_OUT_OF_RANGE:
            return LogGap(
                "the position is outside the log",
                where=refused.where,
                hint="stop the workers, then `streamkit offsets reset <pipeline> --accept-gap --execute` goes on behind it",
            )
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return no_topic(refused.at.topic if isinstance(refused.at, TopicPartition) else refused.where)
        case ErrorCode.NON_EMPTY_GROUP:
            problem = "the group has members"
        case ErrorCode.INVALID_PARTITIONS:
            problem = "a topic cannot have this number of partitions"
        case _:
            problem = f"the broker answered {refused.code.name}"
    return Misconfigured(problem, where=refused.where)


def unanswered(error: NoReply) -> Retry:
    """What anybody but a committing writer makes of silence: the same again, later."""
    return Retry("the broker did not answer in time", detail=str(error))
