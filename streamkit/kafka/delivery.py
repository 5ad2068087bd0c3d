"""Getting batches onto their partitions: rounds, leaders, and an acknowledgement for every one.

A round holds at most one batch per partition, because a Produce request does. The partitions of a leader travel in
one request, or in several if they are many and full; leaders are asked in parallel. A batch that must be sent again is sent as the very same bytes with the
same sequence number: the broker keeps one copy.

A partition that a transactional writer has written to before may still hold something of it that its leader, when it
was lost, forgot to end (`runtime/retire.py`). So there a leader that does not answer, or is not the leader any more,
ends the attempt.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from streamkit.errors import Bug, DataRefused, WriterDead
from streamkit.kafka.connection import Connection, NoAnswer, Purpose
from streamkit.kafka.coordinator import Backoffs
from streamkit.kafka.error_codes import PRODUCE, ErrorCode, Reaction, error_for, name_of
from streamkit.kafka.produce_calls import Ack, produce
from streamkit.kafka.transaction_port import NOBODY, Producer
from streamkit.model.commit import OutBatch
from streamkit.model.ids import TopicPartition

_SEQUENCE_MASK = 0x7FFFFFFF  # Kafka's sequence numbers go on at 0 after 2**31 - 1


# A broker closes the connection of whoever sends more than socket.request.max.bytes, by default 100 MB, and says nothing.
REQUEST_BYTES_MAX = 32 * 1024 * 1024


class Sequences:
    """The producer's identity and the next sequence number of each partition under it."""

    __slots__ = ("_next", "identity")

    def __init__(self) -> None:
        self.identity = NOBODY
        self._next: dict[TopicPartition, int] = {}

    def begin(self, identity: Producer) -> None:
        """A new epoch: every partition starts at 0."""
        if min(identity) < 0:
            raise Bug("the broker answered without a producer's identity")
        self.identity = identity
        self._next.clear()

    def stamp(self, out: OutBatch) -> bytes:
        """The batch as final bytes under this identity; takes the sequence numbers of its records."""
        sequence = self._next.get(out.partition, 0)
        self._next[out.partition] = (sequence + out.count) & _SEQUENCE_MASK
        builder: Any = out.batch  # made by `KafkaWriter.batch`, hence the client's builder
        builder.set_producer_state(*self.identity, sequence)
        content: bytes = builder.build()
        return content


def in_rounds(batches: Sequence[OutBatch]) -> list[list[OutBatch]]:
    """Split batches into rounds with one batch per partition, in the order given."""
    rounds: list[list[OutBatch]] = []
    depth: dict[TopicPartition, int] = {}
    for out in batches:
        index = depth.get(out.partition, 0)
        depth[out.partition] = index + 1
        if index == len(rounds):
            rounds.append([])
        rounds[index].append(out)
    return rounds


def in_requests(
    partitions: list[TopicPartition], content: Mapping[TopicPartition, bytes]
) -> list[list[TopicPartition]]:
    """Split partitions into requests that a broker takes."""
    if len(partitions) == 1:
        return [partitions]
    requests: list[list[TopicPartition]] = []
    room = -1
    for partition in partitions:
        size = len(content[partition])
        if room < size:
            requests.append([])
            room = REQUEST_BYTES_MAX
        requests[-1].append(partition)
        room -= size
    return requests


# The partitions of one request, and what the broker says of each; None if it said nothing.
Answer = tuple[list[TopicPartition], list[Ack] | None]


class Delivery:
    """Sends rounds for one writer. Callers bound the wait; `trouble` then says what it waited for."""

    def __init__(self, connection: Connection, writer_id: str | None, timeout_ms: int) -> None:
        self._connection = connection
        self._writer_id = writer_id
        self._timeout_ms = timeout_ms
        self._watched: set[str] = set()
        self.version = 0
        self.sequences = Sequences()
        self.trouble = ""
        # Who led the partitions that were written to under this id.
        self.leaders: dict[TopicPartition, int] = {}

    def rename(self, writer_id: str) -> None:
        """Write under a new transactional id, which has not written to any partition yet."""
        self._writer_id = writer_id
        self.leaders.clear()

    async def watch(self, partitions: Sequence[TopicPartition]) -> None:
        """Learn who leads these partitions, before anything is sent."""
        topics = {partition.topic for partition in partitions}
        if topics <= self._watched:
            return
        await self._connection.watch(topics)
        leaderless = [partition for partition in partitions if self._connection.leader(partition) is None]
        if leaderless:
            self.trouble = f"{leaderless[0]} has no leader"
        else:
            self._watched |= topics

    async def send(self, batches: Sequence[OutBatch]) -> dict[TopicPartition, int]:
        """Write every batch; returns, per partition, the offset after its last record.

        Raises:
            Fenced, DataRefused, Misconfigured, WriterDead: by the table of error codes.
        """
        ends: dict[TopicPartition, int] = {}
        for batch_round in in_rounds(batches):
            waiting = {out.partition: self.sequences.stamp(out) for out in batch_round}
            first = await self._round(waiting)
            for out in batch_round:
                ends[out.partition] = first[out.partition] + out.count
        if self._writer_id is not None:
            self._remember_leaders(ends)
        return ends

    def _remember_leaders(self, written: Iterable[TopicPartition]) -> None:
        """Those that are known already have not changed: `_try` would have noticed."""
        for at in written:
            if at not in self.leaders and (leader := self._connection.leader(at)) is not None:
                self.leaders[at] = leader

    async def _round(self, waiting: dict[TopicPartition, bytes]) -> dict[TopicPartition, int]:
        """Send until every batch is acknowledged; returns where each one begins."""
        acknowledged: dict[TopicPartition, int] = {}
        resent: set[TopicPartition] = set()
        pauses = Backoffs()
        while True:
            worst = await self._try(waiting, acknowledged, resent)
            if worst is Reaction.DONE:
                self.trouble = ""
                return acknowledged
            await pauses.wait(worst)
            if worst is not Reaction.AGAIN:
                await self._connection.refresh()

    async def _try(
        self,
        waiting: dict[TopicPartition, bytes],
        acknowledged: dict[TopicPartition, int],
        resent: set[TopicPartition],
    ) -> Reaction:
        """Send what waits to its leaders once; what is acknowledged moves from `waiting` to `acknowledged`."""
        by_leader: dict[int, list[TopicPartition]] = {}
        worst = Reaction.DONE
        for partition in waiting:
            leader = self._connection.leader(partition)
            if leader != self.leaders.get(partition, leader):
                raise self._lost(partition, "another broker leads it now")
            if leader is None:
                self.trouble = f"{partition} has no leader"
                worst = Reaction.MOVED
            else:
                by_leader.setdefault(leader, []).append(partition)
        for partitions, acks in await self._ask_all(by_leader, waiting):
            if acks is None:
                for known in self.leaders.keys() & set(partitions):
                    raise self._lost(known, self.trouble)
                resent.update(partitions)
                verdict = Reaction.DOUBT
            else:
                _check_complete(partitions, acks)
                verdict = self._take(acks, waiting, acknowledged, resent)
            worst = max(worst, verdict, key=lambda v: v.value)
        return worst

    async def _ask_all(
        self, by_leader: dict[int, list[TopicPartition]], waiting: dict[TopicPartition, bytes]
    ) -> list[Answer]:
        """The answers of every leader."""
        asking = [self._ask_leader(leader, led, waiting) for leader, led in by_leader.items()]
        # One leader is the common case; it needs no task of its own.
        if len(asking) == 1:
            return await asking[0]
        return list(chain.from_iterable(await asyncio.gather(*asking)))

    async def _ask_leader(
        self, leader: int, partitions: list[TopicPartition], waiting: dict[TopicPartition, bytes]
    ) -> list[Answer]:
        """One request after the other, until one gets no answer: what is behind it was not sent, and waits."""
        answers: list[Answer] = []
        for part in in_requests(partitions, waiting):
            acks = await self._ask(leader, [(partition, waiting[partition]) for partition in part])
            answers.append((part, acks))
            if acks is None:
                break
        return answers

    async def _ask(self, leader: int, batches: list[tuple[TopicPartition, bytes]]) -> list[Ack] | None:
        call = produce(self.version, self._writer_id, self._timeout_ms, batches)
        try:
            return await self._connection.send(leader, call, Purpose.PRODUCE)
        except NoAnswer as error:
            self.trouble = f"Produce got no answer: {type(error).__name__} {error}"
            return None

    def _take(
        self,
        acks: list[Ack],
        waiting: dict[TopicPartition, bytes],
        acknowledged: dict[TopicPartition, int],
        resent: set[TopicPartition],
    ) -> Reaction:
        """Sort one leader's answer; the worst verdict that still allows another try."""
        worst = Reaction.DONE
        for ack in acks:
            # What nearly every one says needs no judge.
            if ack.code == ErrorCode.OK:
                verdict = Reaction.DONE
            else:
                verdict = self._judge(ack, is_resent=ack.partition in resent)
            if verdict is Reaction.DONE:
                if ack.base_offset < 0:
                    raise WriterDead("the broker did not say where it put a batch", where=str(ack.partition))
                acknowledged[ack.partition] = ack.base_offset
                del waiting[ack.partition]
                continue
            self.trouble = f"Produce to {ack.partition} answered {name_of(ack.code)}"
            if verdict is Reaction.DOUBT:
                resent.add(ack.partition)
            worst = max(worst, verdict, key=lambda v: v.value)
        return worst

    def _judge(self, ack: Ack, *, is_resent: bool) -> Reaction:
        """What an acknowledgement means; raises if there is no other try."""
        verdict = PRODUCE.get(ack.code, Reaction.DEAD)
        if ack.code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER and is_resent:
            return Reaction.DONE
        if verdict is Reaction.REFUSED:
            raise _refused(ack)
        if verdict.value > Reaction.DOUBT.value:
            raise error_for(verdict, ack.code, doing="Produce", where=str(ack.partition), detail=ack.message)
        if verdict is Reaction.MOVED and ack.partition in self.leaders:
            raise self._lost(ack.partition, f"Produce answered {name_of(ack.code)}")
        return verdict

    def _lost(self, partition: TopicPartition, why: str) -> WriterDead:
        return WriterDead(
            "the leader of a partition was lost, what it knows of our transactions is not known",
            where=str(partition),
            detail=why,
        )


def _refused(ack: Ack) -> DataRefused:
    said = f"Produce answered {name_of(ack.code)}"
    return DataRefused(
        "the broker refused the data",
        topic=ack.partition.topic,
        where=str(ack.partition),
        detail=f"{said}: {ack.message}" if ack.message else said,
        hint="compare the record with the topic's max.message.bytes, cleanup.policy and message.timestamp.*",
    )


def _check_complete(partitions: list[TopicPartition], acks: list[Ack]) -> None:
    """One acknowledgement for each batch sent, no more, no fewer."""
    if len(acks) != len(partitions) or {ack.partition for ack in acks} != set(partitions):
        raise WriterDead(
            "the broker did not acknowledge what it was sent",
            detail=f"{len(partitions)} batches sent, {len(acks)} acknowledgements",
        )
