"""Asking the broker that coordinates a group: looked up when needed, forgotten when it moved or went silent."""

import asyncio
from typing import Any, TypeVar

from aiokafka.errors import KafkaError

from streamkit.errors import Misconfigured, Retry
from streamkit.kafka.connection import Connection, NoAnswer, Purpose
from streamkit.kafka.error_codes import ErrorCode, name_of
from streamkit.kafka.outage import Waiting
from streamkit.kafka.wire import Call

R = TypeVar("R")

_PAUSE_FIRST_S = 0.02
_PAUSE_LAST_S = 0.5

_MOVED = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}

_REFUSALS = {
    23: "other consumers use this group; give the pipeline a name of its own, or stop them",
    24: "the group's name is empty or not allowed; rename the pipeline",
    26: "raise session_timeout_s; the broker's bounds are group.min.session.timeout.ms and its max",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "give our user the ACL READ on the group",
    81: "the broker's group.max.size is reached; stop workers or raise it",
}


class GroupLine:
    """The way to the coordinator of one group, over one connection."""

    def __init__(self, connection: Connection, group: str) -> None:
        self._connection = connection
        self._group = group
        self._coordinator: int | None = None
        self.waiting = Waiting("the group cannot be joined", group=group)
        self._trouble = ""

    def forget(self) -> None:
        """Look the coordinator up again before the next question."""
        self._coordinator = None

    async def until_answered(self, call: Call[R], lane: int) -> R:
        """Ask until the coordinator, whoever it is by then, gives an answer that is about the question."""
        pause_s = _PAUSE_FIRST_S
        while True:
            answer = await self.ask(call, lane)
            if answer is not None:
                return answer
            self.waiting.failed(self._trouble)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_LAST_S)

    async def ask(self, call: Call[R], lane: int) -> R | None:
        """Ask once; None if there was no answer or the coordinator has moved."""
        try:
            if self._coordinator is None:
                self._coordinator = await self._connection.coordinator(Purpose.GROUP, self._group)
            answer = await self._connection.send(self._coordinator, call, lane)
        except NoAnswer as error:
            self._coordinator, self._trouble = None, f"no answer: {type(error).__name__} {error}"
            return None
        except KafkaError as error:  # the look-up answered with a code
            code = getattr(error, "errno", ErrorCode.UNKNOWN_SERVER_ERROR)
            if code in _REFUSALS:
                self.judge(code, "FindCoordinator")
            self._coordinator, self._trouble = None, f"FindCoordinator answered {name_of(code)}"
            return None
        said: Any = getattr(answer, "error", answer)
        if said in _MOVED:
            self._coordinator, self._trouble = None, f"it answered {name_of(said)}"
            return None
        return answer

    async def leave(self, call: Call[int], lane: int) -> None:
        """Ask until a member has left; one that nobody knows is fine."""
        code = await self.until_answered(call, lane)
        if code not in (ErrorCode.OK, ErrorCode.UNKNOWN_MEMBER_ID):
            self.judge(code, "LeaveGroup")

    def judge(self, code: int, doing: str) -> None:
        """Raise what no repetition will mend."""
        if code in _REFUSALS:
            raise refusal(self._group, code, doing)
        raise Retry(
            "the broker did not let us into the group",
            where=f'group "{self._group}"',
            detail=f"{doing} answered {name_of(code)}",
        )


def refusal(group: str, code: int, doing: str) -> Misconfigured:
    """What a person must do when a group does not take us."""
    return Misconfigured(
        "the broker refused us as a member",
        where=f'group "{group}"',
        detail=f"{doing} answered {name_of(code)}",
        hint=_REFUSALS[code],
    )
