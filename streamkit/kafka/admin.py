"""The `Admin` port on a real cluster: topics, offsets, positions, fencing.

Everything waits for its own effect: a topic that `create` returned from can be written to through any broker, a
configuration that was set can be read. Passing faults are retried until `ADMIN_DEADLINE_S`, then it is a `Retry`.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from aiokafka.errors import KafkaError

from streamkit.errors import Fenced, Misconfigured, Retry
from streamkit.kafka import admin_calls as calls
from streamkit.kafka.connection import Connection, Purpose
from streamkit.kafka.coordinator import Backoffs, Coordinator
from streamkit.kafka.error_codes import POSITIONS, PREPARE, ErrorCode, Reaction, name_of
from streamkit.kafka.missing import no_topic
from streamkit.kafka.shown_member import ShownMember
from streamkit.kafka.transaction_calls import (
    INIT_PRODUCER_ID_KEY,
    api_versions,
    init_producer_id,
    offset_commit,
)
from streamkit.kafka.transaction_port import NOBODY
from streamkit.kafka.wire import Call
from streamkit.model.ids import Position, TopicPartition
from streamkit.model.topic_shape import TopicInfo, TopicSpec

R = TypeVar("R")

# Electing leaders after a broker died takes about ten seconds; beyond this a person should look.
ADMIN_DEADLINE_S = 30.0
_CONFIGURED_DEADLINE_S = 5.0
# A broker that has just started may not have heard of a topic yet.
_MISSING_S = 5.0
_REQUEST_TIMEOUT_MS = 8_000
_FENCED_TIMEOUT_MS = 10_000  # of a writer id that nobody will write with

# Codes that pass by themselves, and how patiently to ask again.
_PASSING: Mapping[int, Reaction] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reaction.AGAIN,  # not heard of yet: whether it exists was checked before
    ErrorCode.LEADER_NOT_AVAILABLE: Reaction.AGAIN,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: Reaction.AGAIN,
    ErrorCode.UNSTABLE_OFFSET_COMMIT: Reaction.AGAIN,
    ErrorCode.REQUEST_TIMED_OUT: Reaction.MOVED,
    ErrorCode.REPLICA_NOT_AVAILABLE: Reaction.MOVED,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.MOVED,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.MOVED,
    ErrorCode.NOT_COORDINATOR: Reaction.MOVED,
    ErrorCode.NOT_CONTROLLER: Reaction.MOVED,
    ErrorCode.KAFKA_STORAGE_ERROR: Reaction.MOVED,
    ErrorCode.FENCED_LEADER_EPOCH: Reaction.MOVED,
    ErrorCode.UNKNOWN_LEADER_EPOCH: Reaction.MOVED,
    ErrorCode.OFFSET_NOT_AVAILABLE: Reaction.MOVED,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: Reaction.MOVED,
}
# The one cause of INVALID_REPLICATION_FACTOR that passes by itself: too few brokers stay too few. Only the text tells.
_ALL_FENCED = "All brokers are currently fenced"
_MISSING = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC})
_FORBIDDEN = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


class _Passing(Exception):
    """The answer is not there yet; ask again. Never leaves this module."""

    def __init__(self, trouble: str, verdict: Reaction = Reaction.AGAIN) -> None:
        super().__init__(trouble)
        self.verdict = verdict


class KafkaAdmin:
    """Questions and changes that concern the cluster as a whole; shares the connection, which its owner closes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """Number of partitions of each topic that exists."""
        return {state.name: len(state.partitions) for state in await self._existing(topics)}

    async def list_topics(self) -> list[str]:
        """Names of all topics, sorted, without Kafka's own (internal, or named like it)."""
        known = await self._until("listing topics", partial(self._ask_any, calls.metadata(None)))
        return sorted(t.name for t in known.topics if not t.internal and not t.name.startswith("__"))

    async def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        """Partitions, replication and configuration."""
        states = await self._existing(topics)
        if not states:
            return {}
        configs = await self._until(
            "reading configurations",
            partial(self._ask_any, calls.describe_configs([state.name for state in states])),
        )
        return {
            state.name: TopicInfo(
                name=state.name,
                partitions=len(state.partitions),
                replication=min((p.replicas for p in state.partitions), default=0),
                config=configs[state.name].own,
                effective=configs[state.name].effective,
            )
            for state in states
            if state.name in configs
        }

    async def create(self, topics: Sequence[TopicSpec]) -> None:
        """Create topics and wait until every broker knows them and every leader answers."""
        if not topics:
            return
        call = calls.create_topics(topics, _REQUEST_TIMEOUT_MS)
        await self._until("creating topics", partial(self._change, call, ErrorCode.TOPIC_ALREADY_EXISTS))
        await self._until("waiting for new topics", partial(self._check_usable, {t.name: 1 for t in topics}))

    async def configure(self, topic: str, config: Mapping[str, str]) -> None:
        """Set configuration entries and wait until every broker shows them."""
        if not config:
            return
        await self._require([topic])
        await self._until("configuring a topic", partial(self._change, calls.alter_config(topic, config)))
        # A broker may spell a value in its own way ("0100" as "100"): not to see it is no error.
        with contextlib.suppress(Retry):
            check = partial(self._check_configured, topic, config)
            await self._until("waiting for a configuration", check, timeout_s=_CONFIGURED_DEADLINE_S)

    async def add_partitions(self, topic: str, partitions: int) -> None:
        """Raise the number of partitions and wait until they can be written to."""
        await self._require([topic])
        await self._until("adding partitions", partial(self._grow, topic, partitions))
        await self._until("waiting for new partitions", partial(self._check_usable, {topic: partitions}))

    async def delete(self, topics: Iterable[str]) -> None:
        """Delete topics and wait until no broker knows them."""
        names = sorted(set(topics))
        if not names:
            return
        call = calls.delete_topics(names, _REQUEST_TIMEOUT_MS)
        await self._until(
            "deleting topics", partial(self._change, call, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        )
        await self._until("waiting for topics to go", partial(self._check_gone, names))

    async def start_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that is still there."""
        return await self._offsets(partitions, calls.EARLIEST, committed=False)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, committed: bool
    ) -> dict[TopicPartition, int]:
        """The offset after the last record; with `committed`, the first offset of the oldest open transaction."""
        return await self._offsets(partitions, calls.LATEST, committed=committed)

    async def offsets_for_time(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        """First offset at or after this time; the end offset where there is none."""
        found = await self._offsets(partitions, timestamp_ms, committed=False)
        late = [partition for partition, offset in found.items() if offset < 0]
        return found | (await self.end_offsets(late, committed=False) if late else {})

    async def positions(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout_s: float
    ) -> dict[TopicPartition, Position]:
        """The group's committed positions; waits while a transaction holds one pending."""
        ask = partial(self._positions, group, calls.offset_fetch(group, partitions))
        return await self._until(f'reading positions of group "{group}"', ask, timeout_s=timeout_s)

    async def reset_positions(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        """Set positions of a group without members; the broker itself refuses if there are any."""
        if members := await self.members(group):
            raise _has_members(group, f"it has {len(members)}")
        if not positions:
            return
        await self._require({partition.topic for partition in positions})
        find = partial(self._connection.coordinator, Purpose.GROUP, group)
        coordinator = Coordinator(self._connection, find, Purpose.METADATA, f'group "{group}"')
        call = offset_commit(group, None, positions)
        try:
            ask = partial(coordinator.settle, call, POSITIONS, "OffsetCommit")
            await self._until(f'setting positions of group "{group}"', ask)
        except Fenced:
            raise _has_members(group, "one joined just now") from None

    async def members(self, group: str) -> list[ShownMember]:
        """Member ids of a group, with what each is known for; empty if there is no such group."""
        return await self._until(f'describing group "{group}"', partial(self._members, group))

    async def fence(self, writer_id: str) -> None:
        """End whatever transaction this writer has open; its epoch is of no use from here on."""
        find = partial(self._connection.coordinator, Purpose.TRANSACTION, writer_id)
        coordinator = Coordinator(self._connection, find, Purpose.METADATA, f'writer "{writer_id}"')
        abilities = await self._until("asking for versions", partial(self._ask_any, api_versions()))
        version = abilities.best(INIT_PRODUCER_ID_KEY, 3, 5)
        call = init_producer_id(version, writer_id, _FENCED_TIMEOUT_MS, NOBODY)
        ask = partial(coordinator.settle, call, PREPARE, "InitProducerId")
        await self._until(f'fencing writer "{writer_id}"', ask)

    async def close(self) -> None:
        """Nothing of its own to release."""

    async def _until(
        self, doing: str, ask: Callable[[], Coroutine[Any, Any, R]], *, timeout_s: float | None = None
    ) -> R:
        """Ask until there is an answer that lasts, or the deadline has passed."""
        deadline_s = ADMIN_DEADLINE_S if timeout_s is None else timeout_s
        trouble = "no answer"
        pauses = Backoffs()
        try:
            async with asyncio.timeout(deadline_s):
                while True:
                    try:
                        return await ask()
                    except _Passing as passing:
                        trouble, verdict = str(passing), passing.verdict
                    except (KafkaError, OSError) as error:
                        trouble, verdict = str(error) or type(error).__name__, Reaction.MOVED
                        if getattr(error, "errno", None) in _FORBIDDEN:
                            raise Misconfigured(f"the broker refused {doing}", detail=trouble) from error
                    await pauses.wait(verdict)
        except TimeoutError:
            raise Retry(f"{doing} took longer than {deadline_s:g} s", detail=trouble) from None

    async def _ask_any(self, call: Call[R]) -> R:
        return await self._connection.send(self._connection.any_node(), call, Purpose.METADATA)

    async def _ask_all(self, call: Call[R]) -> list[R]:
        """The answer of every broker."""
        known = await self._ask_any(calls.metadata([]))
        if not known.nodes:  # the one we asked has lost its session, and counts itself as gone
            raise _Passing("no broker is up", Reaction.MOVED)
        asking = [self._connection.send(node, call, Purpose.METADATA) for node in known.nodes]
        return list(await asyncio.gather(*asking))

    async def _existing(self, topics: Iterable[str]) -> list[calls.TopicState]:
        names = sorted(set(topics))
        if not names:
            return []
        return await self._until("reading metadata", partial(self._ask_topics, names))

    async def _ask_topics(self, names: list[str]) -> list[calls.TopicState]:
        known = await self._ask_any(calls.metadata(names))
        for state in known.topics:
            if state.code not in _MISSING:
                _check(state.code, state.name)
        return [state for state in known.topics if state.code == ErrorCode.OK]

    async def _require(self, topics: Iterable[str]) -> None:
        wanted, clock = set(topics), asyncio.get_running_loop().time
        give_up_at, pauses = clock() + _MISSING_S, Backoffs()
        while missing := wanted - {state.name for state in await self._existing(wanted)}:
            if clock() < give_up_at:
                await pauses.wait(Reaction.MOVED)
                continue
            raise no_topic(", ".join(sorted(missing)))

    async def _change(self, call: Call[list[calls.TopicOutcome]], fine: ErrorCode = ErrorCode.OK) -> None:
        """Have the controller do it; `fine` is a code that means there was nothing to do."""
        known = await self._ask_any(calls.metadata([]))
        if known.controller < 0:
            raise _Passing("no broker is up", Reaction.MOVED)
        for outcome in await self._connection.send(known.controller, call, Purpose.METADATA):
            if outcome.code != fine:
                _check(outcome.code, outcome.topic, outcome.message)

    async def _grow(self, topic: str, partitions: int) -> None:
        # Looked at in every try: the one before may have worked although its answer was lost.
        found = await self._ask_topics([topic])
        if not found:
            raise _Passing(f'not every broker knows topic "{topic}"')
        if len(found[0].partitions) != partitions:
            await self._change(calls.create_partitions(topic, partitions, _REQUEST_TIMEOUT_MS))

    async def _check_usable(self, topics: Mapping[str, int]) -> None:
        """Every broker knows a leader of every partition, and every leader answers for it."""
        everything: set[TopicPartition] = set()
        for known in await self._ask_all(calls.metadata(sorted(topics))):
            for state in known.topics:
                _check(state.code, state.name)
                if len(state.partitions) < topics[state.name] or any(p.leader < 0 for p in state.partitions):
                    raise _Passing(f'topic "{state.name}" is not complete yet')
                everything |= {TopicPartition(state.name, part.number) for part in state.partitions}
        await self._ask_offsets(sorted(everything), calls.LATEST, committed=False)

    async def _check_gone(self, names: list[str]) -> None:
        for known in await self._ask_all(calls.metadata(names)):
            left = [state.name for state in known.topics if state.code not in _MISSING]
            if left:
                raise _Passing(f'topic "{left[0]}" is still there')

    async def _check_configured(self, topic: str, config: Mapping[str, str]) -> None:
        for shown in await self._ask_all(calls.describe_configs([topic])):
            own = shown[topic].own if topic in shown else {}
            if any(own.get(key) != value.replace(" ", "") for key, value in config.items()):
                raise _Passing("not every broker shows it", Reaction.AGAIN)

    async def _offsets(
        self, partitions: Iterable[TopicPartition], timestamp: int, *, committed: bool
    ) -> dict[TopicPartition, int]:
        wanted = list(partitions)
        if not wanted:
            return {}
        await self._require({partition.topic for partition in wanted})
        return await self._until(
            "reading offsets", partial(self._ask_offsets, wanted, timestamp, committed=committed)
        )

    async def _ask_offsets(
        self, wanted: list[TopicPartition], timestamp: int, *, committed: bool
    ) -> dict[TopicPartition, int]:
        known = await self._ask_any(calls.metadata(sorted({partition.topic for partition in wanted})))
        leaders = {
            TopicPartition(state.name, part.number): part.leader
            for state in known.topics
            for part in state.partitions
        }
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in wanted:
            by_leader.setdefault(_leader(leaders, partition), []).append(partition)
        answers = await asyncio.gather(
            *(
                self._connection.send(
                    leader, calls.list_offsets(led, timestamp, committed=committed), Purpose.METADATA
                )
                for leader, led in by_leader.items()
            )
        )
        found: dict[TopicPartition, int] = {}
        for partition, code, offset in itertools.chain.from_iterable(answers):
            _check(code, str(partition))
            found[partition] = offset
        return found

    async def _positions(
        self, group: str, call: Call[tuple[int, list[calls.Noted]]]
    ) -> dict[TopicPartition, Position]:
        node = await self._connection.coordinator(Purpose.GROUP, group)
        code, found = await self._connection.send(node, call, Purpose.METADATA)
        for answered, where in ((code, f'group "{group}"'), *((f.code, str(f.partition)) for f in found)):
            _check(answered, where)
        return {partition: position for partition, _code, position in found if position >= 0}

    async def _members(self, group: str) -> list[ShownMember]:
        node = await self._connection.coordinator(Purpose.GROUP, group)
        answer = await self._connection.send(node, calls.describe_group(group), Purpose.METADATA)
        if answer.code != ErrorCode.GROUP_ID_NOT_FOUND:
            _check(answer.code, f'group "{group}"')
        return answer.members


def _leader(leaders: Mapping[TopicPartition, int], partition: TopicPartition) -> int:
    leader = leaders.get(partition)
    if leader is None:
        raise no_topic(str(partition))
    if leader < 0:
        raise _Passing(f"{partition} has no leader")
    return leader


def _check(code: int, where: str, message: str = "") -> None:
    """Raise unless this code means success."""
    if code in _PASSING:
        raise _Passing(f"{where}: {name_of(code)}", _PASSING[code])
    if code == ErrorCode.INVALID_REPLICATION_FACTOR and _ALL_FENCED in message:
        raise _Passing(f"{where}: {message}", Reaction.MOVED)
    if code != ErrorCode.OK:
        detail = f"{name_of(code)}: {message}" if message else name_of(code)
        raise Misconfigured("the broker refused the request", where=where, detail=detail)


def _has_members(group: str, detail: str) -> Misconfigured:
    return Misconfigured(
        f'group "{group}" has members', detail=detail, hint="stop every worker of the pipeline first"
    )
