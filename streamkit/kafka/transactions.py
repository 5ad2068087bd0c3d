"""The `Transactions` port on a real cluster: what can be known and done about a writer that writes no more.

Rights: what a worker has anyway, to write by its transactional ids and to its topics. Who has something open on a
partition is told only to those who may read it. Where we may not, a partition on which anything is open is taken for one
of ours: to end nothing there costs one marker, and what others have open stays as it is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeVar

from aiokafka.errors import KafkaError

from streamkit.errors import Misconfigured, Retry
from streamkit.kafka import admin_calls
from streamkit.kafka import describe_calls as calls
from streamkit.kafka.admin import ADMIN_DEADLINE_S, KafkaAdmin
from streamkit.kafka.connection import Connection, NoAnswer, Purpose
from streamkit.kafka.coordinator import Backoffs
from streamkit.kafka.error_codes import ErrorCode, Reaction, name_of
from streamkit.kafka.transaction_calls import (
    END_TXN_KEY,
    TRANSACTION_VERSION_2,
    Reply,
    add_offsets,
    add_partitions,
    api_versions,
    end_txn,
)
from streamkit.kafka.transaction_port import LastTransaction, LeftOpen, Producer, TransactionState
from streamkit.kafka.wire import Call, compact_string
from streamkit.model.ids import TopicPartition

R = TypeVar("R")

# Kafka's own topic for positions.
POSITIONS_TOPIC = "__consumer_offsets"

_BY_NAME = {state.value: state for state in TransactionState} | {
    "PrepareEpochFence": TransactionState.PREPARE_ABORT
}
# The coordinator is loading, or is somebody else by now: ask again.
_PASSING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
# What we know of the writer is out of date, or the coordinator is busy with it: look again.
_CHANGED = {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
}
_UNREADABLE = {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


class KafkaTransactions:
    """Asks coordinators and leaders; shares the connection, which its owner closes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._admin = KafkaAdmin(connection)

    async def known(self, prefix: str) -> set[str]:
        """All writer ids that begin like this and of which a coordinator knows."""
        found: set[str] = set()
        for node in self._connection.nodes():
            listed = await self._ask(partial(_is, node), calls.list_transactions(), lambda each: each.code)
            _check(listed.code, "ListTransactions", prefix)
            found.update(each for each in listed.writer_ids if each.startswith(prefix))
        return found

    async def last(self, writer_id: str) -> LastTransaction | None:
        """The last transaction of this writer; None if the coordinator knows nothing of it."""
        call = calls.describe_transaction(writer_id)
        described = await self._ask(self._coordinator(writer_id), call, lambda each: each.code)
        if described.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND or described.state == "Dead":
            return None
        _check(described.code, "DescribeTransactions", writer_id)
        # A state that a later release may have is taken for one that will pass.
        state = _BY_NAME.get(described.state, TransactionState.PREPARE_ABORT)
        return LastTransaction(state, described.producer)

    async def end(self, writer_id: str, producer: Producer, *, commit: bool) -> bool:
        """End what is going on under this very identity; whether the coordinator did so."""
        return await self._try(writer_id, await self._end_call(writer_id, producer, commit=commit), "EndTxn")

    async def end_left(self, writer_id: str, left: LeftOpen, group: str, *, commit: bool) -> bool:
        """End what was left open, by a transaction that writes nothing."""
        packed = compact_string(writer_id)
        asking = [(await self._end_call(writer_id, left.producer, commit=commit), "EndTxn")]
        if left.positions:
            asking.insert(0, (add_offsets(packed, left.producer, group), "AddOffsetsToTxn"))
        if left.partitions:
            call = add_partitions(packed, left.producer, left.partitions)
            asking.insert(0, (call, "AddPartitionsToTxn"))
        await self.last(writer_id)  # the connection is up now, so that they leave in this order, in one go
        done = await asyncio.gather(*(self._try(writer_id, call, doing) for call, doing in asking))
        return all(done)

    async def _end_call(self, writer_id: str, producer: Producer, *, commit: bool) -> Call[Reply]:
        abilities = await self._ask(self._any_node, api_versions(), lambda _: 0)
        is_second = abilities.transaction_version >= TRANSACTION_VERSION_2
        version = 5 if is_second else abilities.best(END_TXN_KEY, 3, 4)
        return end_txn(version, compact_string(writer_id), producer, commit=commit)

    async def left_open(
        self,
        producer: Producer,
        partitions: Iterable[TopicPartition],
        group: str,
        inputs: Iterable[TopicPartition],
    ) -> LeftOpen:
        """What of this producer is open on these partitions, and as positions of these inputs."""
        wanted = set(partitions)
        place = await self._place_of(group)
        asked = await self._open_on(wanted | ({place} if place is not None else set()))
        open_here = {at for at, producers in asked.items() if producer.producer_id in producers}
        unseen = wanted - asked.keys()
        held = frozenset(await self._held_by_anybody(unseen) if unseen else ())
        is_guess = place not in asked
        positions = await self._is_pending(group, inputs) if is_guess else place in open_here
        return LeftOpen(producer, held | (open_here & wanted), positions, is_guess, held)

    async def _open_on(self, partitions: set[TopicPartition]) -> dict[TopicPartition, frozenset[int]]:
        """Who has something open on each partition; without those that we may not ask for, or that are gone."""
        found: dict[TopicPartition, frozenset[int]] = {}
        pauses = Backoffs()
        deadline = asyncio.get_running_loop().time() + ADMIN_DEADLINE_S
        left = set(partitions)
        while left:
            for leader, led in (await self._by_leader(left)).items():
                for answer in await self._producers_on(leader, led):
                    if answer.code == ErrorCode.OK:
                        found[answer.partition] = answer.open_producers
                    if answer.code in {ErrorCode.OK, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, *_UNREADABLE}:
                        left.discard(answer.partition)
            if left and asyncio.get_running_loop().time() > deadline:
                raise Retry("no leader says what is open on a partition", where=str(min(left)))
            if left:
                await pauses.wait(Reaction.MOVED)
        return found

    async def _producers_on(self, leader: int, partitions: list[TopicPartition]) -> list[calls.OnPartition]:
        """What a leader says; nothing if it does not answer."""
        try:
            call = calls.describe_producers(sorted(partitions))
            return await self._connection.send(leader, call, Purpose.METADATA)
        except NoAnswer:
            return []

    async def _by_leader(self, partitions: set[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Whom to ask; drops the partitions that there are none of, or that we may not see."""
        call = admin_calls.metadata(sorted({each.topic for each in partitions}))
        known = await self._ask(self._any_node, call, lambda _: 0)
        led: dict[int, list[TopicPartition]] = {}
        for topic in known.topics:
            if topic.code in {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, *_UNREADABLE}:
                partitions -= {each for each in partitions if each.topic == topic.name}
            for part in topic.partitions:
                at = TopicPartition(topic.name, part.number)
                if at in partitions and part.leader >= 0:
                    led.setdefault(part.leader, []).append(at)
        return led

    async def _held_by_anybody(self, partitions: set[TopicPartition]) -> set[TopicPartition]:
        counts = await self._admin.partitions({each.topic for each in partitions})
        there = [each for each in partitions if each.partition < counts.get(each.topic, 0)]
        stable = await self._admin.end_offsets(there, committed=True)
        ends = await self._admin.end_offsets(there, committed=False)
        return {each for each in there if stable[each] < ends[each]}

    async def _place_of(self, group: str) -> TopicPartition | None:
        """Where Kafka keeps the positions of a group; None if we may not see it."""
        known = await self._ask(self._any_node, admin_calls.metadata([POSITIONS_TOPIC]), lambda _: 0)
        count = max((len(topic.partitions) for topic in known.topics), default=0)
        return TopicPartition(POSITIONS_TOPIC, positions_partition(group, count)) if count else None

    async def _is_pending(self, group: str, inputs: Iterable[TopicPartition]) -> bool:
        find = partial(self._connection.coordinator, Purpose.GROUP, group)
        call = admin_calls.offset_fetch(group, inputs)
        code, found = await self._ask(find, call, lambda answer: answer[0])
        return ErrorCode.UNSTABLE_OFFSET_COMMIT in {code, *(each.code for each in found)}

    async def _try(self, writer_id: str, call: Call[Reply], doing: str) -> bool:
        """Whether it was done; not, if what we know of the writer is out of date."""
        reply = await self._ask(self._coordinator(writer_id), call, _passing_code)
        for code in reply.codes:
            if code in _CHANGED:
                return False
            _check(code, doing, writer_id)
        return True

    async def _ask(self, find: Callable[[], Awaitable[int]], call: Call[R], code_of: Callable[[R], int]) -> R:
        """The answer of whoever is responsible; asked again, for a while, as long as nobody is.

        Raises:
            Retry: nobody answered in time.
        """
        pauses = Backoffs()
        trouble = "no answer"
        try:
            async with asyncio.timeout(ADMIN_DEADLINE_S):
                while True:
                    try:
                        answer = await self._connection.send(await find(), call, Purpose.METADATA)
                    except (KafkaError, *NoAnswer) as error:
                        trouble = str(error) or type(error).__name__
                    else:
                        if code_of(answer) not in _PASSING:
                            return answer
                        trouble = name_of(code_of(answer))
                    await pauses.wait(Reaction.MOVED)
        except TimeoutError:
            raise Retry(
                f"asking about a transaction took longer than {ADMIN_DEADLINE_S:g} s", detail=trouble
            ) from None

    def _coordinator(self, writer_id: str) -> Callable[[], Awaitable[int]]:
        return partial(self._connection.coordinator, Purpose.TRANSACTION, writer_id)

    async def _any_node(self) -> int:
        return self._connection.any_node()


def _passing_code(reply: Reply) -> int:
    return next((code for code in reply.codes if code in _PASSING), ErrorCode.OK)


async def _is(node: int) -> int:
    return node


def positions_partition(group: str, count: int) -> int:
    """The partition that holds the positions of a group: Java's hash of its name."""
    number = 0
    for unit in memoryview(group.encode("utf-16-le")).cast("H"):
        number = (31 * number + unit) & 0xFFFFFFFF
    signed = number - (1 << 32) if number >= 1 << 31 else number
    return (0 if signed == -(1 << 31) else abs(signed)) % count


def _check(code: int, doing: str, where: str) -> None:
    if code != ErrorCode.OK:
        raise Misconfigured(
            "the broker does not let us look after the transactions of a former worker",
            where=where,
            detail=f"{doing} answered {name_of(code)}",
            hint="allow WRITE and DESCRIBE on the transactional ids that begin with the pipeline's name, and WRITE on its\n"
            "topics; until then `kafka-transactions.sh find-hanging` shows, and `abort` ends, what was left open",
        )
