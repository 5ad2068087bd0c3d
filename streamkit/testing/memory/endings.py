"""The `Transactions` port in memory: what a client may ask and do about a writer that writes no more."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from streamkit.kafka.transaction_port import LastTransaction, LeftOpen, Producer
from streamkit.model.ids import TopicPartition
from streamkit.testing.memory.client import Client
from streamkit.testing.memory.partition import TransactionOutcome
from streamkit.testing.memory.refusal import ErrorCode, Refused

R = TypeVar("R")

# The identity is not the current one any more, or there is nothing of that kind to end.
CHANGED = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE}


class MemoryEndings:
    """Asks the broker's own transactions, through the client's network."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._broker = client.broker

    async def known(self, prefix: str) -> set[str]:
        """All writer ids that begin like this."""
        return await self._client.ask_judged(
            "transactions.known", lambda: self._broker.transactions.known(prefix)
        )

    async def last(self, writer_id: str) -> LastTransaction | None:
        """The last transaction of this writer."""
        return await self._client.ask_judged(
            "transactions.last", lambda: self._broker.transactions.last(writer_id)
        )

    async def end(self, writer_id: str, producer: Producer, *, commit: bool) -> bool:
        """End what is going on under this very identity."""
        outcome = TransactionOutcome.COMMITTED if commit else TransactionOutcome.ABORTED
        broker = self._broker

        def apply() -> None:
            broker.transactions.end(writer_id, producer.producer_epoch, broker.now, outcome)

        return await self._try("transactions.end", apply)

    async def left_open(
        self,
        producer: Producer,
        partitions: Iterable[TopicPartition],
        group: str,
        inputs: Iterable[TopicPartition],
    ) -> LeftOpen:
        """What of this producer is open on these partitions, and as positions of these inputs."""
        wanted, sources = list(partitions), list(inputs)
        broker = self._broker

        def read() -> LeftOpen:
            transactions = broker.transactions
            found = transactions.left_open(producer.producer_id, wanted)
            names = transactions.names_of(producer.producer_id)
            pending = broker.groups.group(group).pending
            is_ours = any(
                transaction.writer_id in names and not positions.keys().isdisjoint(sources)
                for transaction, positions in pending.items()
            )
            return LeftOpen(producer, frozenset(found), is_ours)

        return await self._client.ask_judged("transactions.left_open", read)

    async def end_left(self, writer_id: str, left: LeftOpen, group: str, *, commit: bool) -> bool:
        """End what was left open, by a transaction that writes nothing."""
        epoch = left.producer.producer_epoch
        groups = [group] if left.positions else []
        outcome = TransactionOutcome.COMMITTED if commit else TransactionOutcome.ABORTED
        broker = self._broker

        def apply() -> None:
            broker.transactions.add(writer_id, epoch, left.partitions, groups, broker.now)
            broker.transactions.end(writer_id, epoch, broker.now, outcome)

        return await self._try("transactions.end_left", apply)

    async def _try(self, what: str, apply: Callable[[], None]) -> bool:
        """Whether the broker did it; not, if what we know of the writer is out of date."""

        def attempt() -> bool:
            try:
                apply()
            except Refused as refused:
                if refused.code in CHANGED:
                    return False
                raise
            return True

        return await self._client.ask_judged(what, attempt)
