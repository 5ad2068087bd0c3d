"""The road between one client and the broker: the one place where a simulation can hurt.

Every request is a piece of plain code that runs at the broker. Between the caller and that code, and on the way
back, the network may wait, lose or hold; the broker judges whatever reaches it, however late.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from random import Random
from typing import TypeVar

from streamkit.testing.memory.bell import Bell, wait_any
from streamkit.testing.virtual_time import in_process

R = TypeVar("R")


class NoReply(Exception):
    """The client waited for its request time-out and nobody answered: the request may have arrived or not."""


class Fate(Enum):
    """What happens to one request."""

    DELIVERED = "delivered"
    REQUEST_LOST = "request_lost"
    REPLY_LOST = "reply_lost"
    # The client gives up first, the request arrives afterwards.
    REQUEST_LATE = "request_late"


class Network:
    """A network that works; it can be cut, frozen or killed by hand.

    `what` names a request: `reader.fetch`, `writer.open`, `writer.produce`, `writer.positions`, `writer.end`,
    `member.join`, `member.sync`, `member.heartbeat`, `member.leave`, `admin.<method>`. Give each client its own.
    """

    def __init__(self) -> None:
        self.is_cut = False
        self.is_frozen = False
        self.is_killed = False
        self._changed = Bell()

    # What a simulation turns.

    def cut(self) -> None:
        """Lose every request from now on, until `heal`."""
        self.is_cut = True

    def heal(self) -> None:
        """Let requests through again."""
        self.is_cut = False

    def freeze(self) -> None:
        """Stop the client (SIGSTOP): it sends and receives nothing until `thaw`; what is on its way arrives."""
        self.is_frozen = True

    def thaw(self) -> None:
        """Let the client go on where it stood; its late requests reach the broker."""
        self.is_frozen = False
        self._changed.fire()

    def kill(self) -> None:
        """End the client (kill -9): nothing of it reaches the broker any more, and no call of it returns.

        A call returns only to a task that is being cancelled, so that a simulation can clear away what is left.
        """
        self.is_killed = True
        self._changed.fire()

    # What a client calls.

    async def call(self, what: str, apply: Callable[[], R], timeout_s: float) -> R:
        """Run `apply` at the broker and bring back what it returns or raises.

        Raises:
            NoReply: nothing came back within the time-out.
        """
        if self.is_frozen or self.is_killed:
            await self.awake()
        if self.is_cut:
            await self._give_up(what, timeout_s)
        await asyncio.sleep(0)
        if self.is_killed:
            await self.awake()
        result = apply()
        if self.is_frozen or self.is_killed:
            await self.awake()
        return result

    async def together(self, calls: Sequence[Callable[[], Awaitable[R]]]) -> list[R | BaseException]:
        """Make several calls side by side: each one's result or error, in order; none is made after silence.

        Without delays one after the other is the same, and quicker.
        """
        outcomes: list[R | BaseException] = []
        for call in calls:
            outcomes.append(await _outcome(call))
            if isinstance(outcomes[-1], NoReply):
                break
        return outcomes

    async def awake(self) -> None:
        """Wait until the client runs; for ever if it is killed."""
        while self.is_frozen or self.is_killed:
            task = asyncio.current_task()
            if self.is_killed and task is not None and task.cancelling():
                raise asyncio.CancelledError("the client is killed")
            await wait_any(self._changed)

    async def _give_up(self, what: str, timeout_s: float) -> None:
        await asyncio.sleep(timeout_s)
        await self.awake()
        raise NoReply(what)


class SeededNetwork(Network):
    """A network that hurts by chance: the same seed, the same pain.

    `chances` gives the probability of each fate, for every request or for those named in `only`; each way takes a
    random time up to `delay_s_max`. Everything may be changed while it runs.
    """

    def __init__(self, random: Random, *, delay_s_max: float = 0.005) -> None:
        super().__init__()
        self.random = random
        self.delay_s_max = delay_s_max
        self.chances: Mapping[Fate, float] = {}
        self.only: tuple[str, ...] | None = None
        # How often each fate struck: a simulation proves with it that its faults happened.
        self.struck: dict[Fate, int] = dict.fromkeys(Fate, 0)

    def fate(self, what: str) -> Fate:
        """Decide what happens to this request."""
        if self.only is not None and what not in self.only:
            return Fate.DELIVERED
        pick = self.random.random()
        for fate, chance in self.chances.items():
            pick -= chance
            if pick < 0:
                return fate
        return Fate.DELIVERED

    def delay_s(self) -> float:
        """How long one way takes."""
        return self.random.random() * self.delay_s_max

    async def call(self, what: str, apply: Callable[[], R], timeout_s: float) -> R:
        """Run `apply` at the broker, or not, or too late; see `Fate`."""
        await self.awake()
        fate = Fate.REQUEST_LOST if self.is_cut else self.fate(what)
        self.struck[fate] += 1
        await asyncio.sleep(self.delay_s())
        if fate is Fate.DELIVERED:
            result = await self._arrive(apply)
            await asyncio.sleep(self.delay_s())
            await self.awake()
            return result
        if fate is Fate.REPLY_LOST:
            await _outcome(lambda: self._arrive(apply))
        elif fate is Fate.REQUEST_LATE:
            late_s = timeout_s * (1 + self.random.random())
            loop = asyncio.get_running_loop()
            loop.call_later(late_s, self._arrive_late, apply, context=in_process(None))
        await self._give_up(what, timeout_s)
        raise NoReply(what)

    async def together(self, calls: Sequence[Callable[[], Awaitable[R]]]) -> list[R | BaseException]:
        """Make several calls side by side: each one's result or error, in order."""
        if len(calls) == 1:
            return [await _outcome(calls[0])]
        return await asyncio.gather(*(call() for call in calls), return_exceptions=True)

    async def _arrive(self, apply: Callable[[], R]) -> R:
        if self.is_killed:
            await self.awake()
        return apply()

    def _arrive_late(self, apply: Callable[[], object]) -> None:
        if not self.is_killed:
            try:
                apply()
            except Exception:  # noqa: BLE001 - the refusal has nobody to go to: the client gave up long ago
                return


async def _outcome(call: Callable[[], Awaitable[R]]) -> R | BaseException:
    try:
        return await call()
    except Exception as error:  # noqa: BLE001 - a value here: the caller judges all of them together
        return error
