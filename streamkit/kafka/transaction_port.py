"""What may be asked and done about the transactions of a writer that writes no more.

A broker can call a transaction complete although its marker is missing on some partition (DECISIONS.md). Whoever comes
after the writer then has to know how the transaction was decided, which the coordinator tells until somebody begins
something new under that id, and ends what was left open in the same way. So nothing here takes a new epoch.

Two implementations keep these promises, as for the ports in `ports.py`: `kafka/transactions.py` and
`testing/memory/endings.py`.
"""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple, Protocol

import msgspec

from streamkit.model.ids import TopicPartition


class Producer(NamedTuple):
    """Who a producer is to the broker; never computed, always the one that was answered."""

    producer_id: int
    producer_epoch: int


NOBODY = Producer(-1, -1)


class TransactionState(Enum):
    """What the coordinator knows of a writer's last transaction, in Kafka's words.

    EMPTY: none since the last epoch was taken. PREPARE_...: it is decided, markers are being written.
    """

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


# Between two of the others; wait for it to pass.
PASSING = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})


class LastTransaction(msgspec.Struct, frozen=True):
    """The last transaction of a writer id, and the identity under which the next request about it must come."""

    state: TransactionState
    producer: Producer


class LeftOpen(msgspec.Struct, frozen=True):
    """Where something of a producer waits for a marker that nobody will write any more."""

    producer: Producer
    partitions: frozenset[TopicPartition] = frozenset()
    # Whether positions of the group are pending.
    positions: bool = False
    # Whether these positions may be somebody else's: to know, we would have to be allowed to read Kafka's own topic.
    is_guess: bool = False
    # Those of the partitions that may be held by somebody else alone: we may not ask who it is.
    guessed: frozenset[TopicPartition] = frozenset()


class Transactions(Protocol):
    """Questions and requests about transactions, by writer id."""

    async def known(self, prefix: str) -> set[str]:
        """All writer ids that begin like this and of which a coordinator knows."""
        ...

    async def last(self, writer_id: str) -> LastTransaction | None:
        """The last transaction of this writer; None if the coordinator has never heard of it, or has forgotten it."""
        ...

    async def end(self, writer_id: str, producer: Producer, *, commit: bool) -> bool:
        """End what is going on under this very identity; whether the coordinator did so.

        False: something has changed since the identity was learned; look again. An abort of nothing raises the epoch
        (with transaction version 2), so that this identity can begin nothing any more. The answer is no barrier: the
        markers are there when `last` says that it is complete.
        """
        ...

    async def left_open(
        self,
        producer: Producer,
        partitions: Iterable[TopicPartition],
        group: str,
        inputs: Iterable[TopicPartition],
    ) -> LeftOpen:
        """What of this producer is open on these partitions, and as positions of these inputs."""
        ...

    async def end_left(self, writer_id: str, left: LeftOpen, group: str, *, commit: bool) -> bool:
        """End what was left open, by a transaction that writes nothing; False as for `end`.

        Its two requests leave together: if only the first of them arrived, the transaction would time out, which aborts.
        """
        ...
