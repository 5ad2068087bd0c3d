"""blocked: finds output partitions whose committed readers wait for an open transaction, and reports them.

A transaction is open for milliseconds, and one whose worker died for its time-out at most. What is open for longer was
forgotten by a broker, or belongs to somebody else who writes to the same topic. The first kind is retired; either kind is
told, as a metric and as a line in the log that says how to end it by hand.
"""

from collections.abc import Awaitable, Callable, Sequence

import msgspec
import structlog

from streamkit.kafka.ports import Admin
from streamkit.model.ids import TopicPartition
from streamkit.runtime.periodic_checks import PeriodicCheck

log = structlog.get_logger()

# Two requests per leader each time.
LOOK_S = 15.0
# A broker looks for overdue transactions every 10 s; beyond their time-out and this much nothing ends by itself.
GRACE_S = 30.0


class Blockage(msgspec.Struct):
    """A partition whose committed readers stand still."""

    offset: int
    since_s: float
    # When to say so next: later each time.
    say_at_s: float
    pause_s: float


class BlockedOutputs:
    """Looks now and then whether the stable end of a partition that we write to stays behind its end."""

    def __init__(
        self,
        admin: Admin,
        outputs: Sequence[TopicPartition],
        sweep: Callable[[], Awaitable[None]],
        transaction_timeout_s: float,
    ) -> None:
        """`sweep` retires whatever writers of ours may be to blame."""
        self._admin = admin
        self._outputs = outputs
        self._sweep = sweep
        self._patience_s = transaction_timeout_s + GRACE_S
        self._held: dict[TopicPartition, Blockage] = {}
        self._check = PeriodicCheck("blocked outputs", first_after_s=LOOK_S)

    @property
    def count(self) -> int:
        """Partitions that have been held for longer than any transaction lasts."""
        return sum(1 for held in list(self._held.values()) if held.say_at_s > held.since_s + self._patience_s)

    def follow(self, now_s: float) -> None:
        """Check, if it is time to; called by the loop.

        Raises:
            Bug: that fails again and again, for a reason that nobody expected.
        """
        if self._check.is_due(now_s):
            self._check.begin(self.look(now_s), now_s, LOOK_S)

    async def stop(self) -> None:
        """End what is under way."""
        await self._check.stop()

    async def look(self, now_s: float) -> None:
        """Compare the ends; say what has been held for too long, and try to end it."""
        outputs = list(self._outputs)  # they may become more meanwhile
        stable = await self._admin.end_offsets(outputs, committed=True)
        ends = await self._admin.end_offsets(outputs, committed=False)
        for partition in outputs:
            if stable[partition] >= ends[partition]:
                self._let_go(partition)
            else:
                self._hold(partition, stable[partition], now_s)
        overdue = [partition for partition, held in self._held.items() if held.say_at_s <= now_s]
        for partition in overdue:
            self._say(partition, self._held[partition], now_s)
        if overdue:
            await self._sweep()

    def _let_go(self, partition: TopicPartition) -> None:
        held = self._held.pop(partition, None)
        if held is not None and held.say_at_s > held.since_s + self._patience_s:
            log.info("an output topic is not blocked any more", partition=str(partition))

    def _hold(self, partition: TopicPartition, offset: int, now_s: float) -> None:
        held = self._held.get(partition)
        if held is None or held.offset != offset:
            self._held[partition] = Blockage(offset, now_s, now_s + self._patience_s, self._patience_s)

    def _say(self, partition: TopicPartition, held: Blockage, now_s: float) -> None:
        log.error(
            "an output topic is blocked: readers of committed records wait for a transaction that does not end",
            partition=str(partition),
            offset=held.offset,
            seconds=round(now_s - held.since_s),
            hint=f"if it stays: kafka-transactions.sh --bootstrap-server ... abort --topic {partition.topic} "
            f"--partition {partition.partition} --start-offset {held.offset}",
        )
        held.pause_s *= 2
        held.say_at_s = now_s + held.pause_s
