"""What we use of the client beyond its documentation: an upgrade that changes any of it fails here, by name."""

import asyncio
import inspect
from collections.abc import AsyncIterator

import aiokafka
import pytest
from aiokafka import errors
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.cluster import ClusterMetadata
from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import TopicPartition as ClientPartition

from streamkit.config import Security
from streamkit.errors import Misconfigured
from streamkit.kafka.admin import KafkaAdmin
from streamkit.kafka.connection import Connection, NoAnswer, Purpose
from streamkit.kafka.transaction_calls import api_versions
from streamkit.kafka.wire import Call
from streamkit.model.ids import TopicPartition
from streamkit.model.topic_shape import TopicSpec
from streamkit.testing.broker import Broker


def test_the_client_is_a_version_that_was_looked_at() -> None:
    assert tuple(map(int, aiokafka.__version__.split(".")[:2])) == (0, 14)


def builder(batch_size: int = 900_000, transactional: int = 1) -> DefaultRecordBatchBuilder:
    return DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=transactional,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=batch_size,
    )


def test_the_builder_is_the_compiled_one() -> None:
    assert "_crecords" in DefaultRecordBatchBuilder.__module__


def test_the_builder_takes_records_until_it_is_full_but_always_the_first() -> None:
    batch = builder(100)
    assert batch.append(0, 1, b"k", b"x" * 500, [("h", b"1"), ("n", None)]) is not None
    assert batch.append(1, 1, None, None, []) is None
    batch = builder(200)
    fitting = 0
    while batch.append(fitting, 1, b"key", b"value", []) is not None:
        fitting += 1
    assert 2 < fitting < 20
    assert batch.size() <= 200


def test_a_batch_is_stamped_late_and_built_as_often_as_asked() -> None:
    batch = builder()
    for index in range(3):
        batch.append(index, 1000 + index, b"k%d" % index, b"v", [("h", b"1")])
    batch.set_producer_state(77, 5, 42)
    built = bytes(batch.build())
    assert bytes(batch.build()) == built
    read = MemoryRecords(built).next_batch()
    assert isinstance(read, DefaultRecordBatch)
    assert read.validate_crc()
    assert (read.producer_id, read.producer_epoch, read.base_sequence) == (77, 5, 42)
    assert read.is_transactional
    assert not read.is_control_batch
    records = [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in read]
    assert records == [(i, 1000 + i, b"k%d" % i, b"v", [("h", b"1")]) for i in range(3)]
    plain = builder(transactional=0)
    plain.append(0, 1, None, b"", [])
    plain.set_producer_state(1, 0, 0)
    assert not MemoryRecords(bytes(plain.build())).next_batch().is_transactional


def test_no_answer_holds_every_way_in_which_the_client_says_so() -> None:
    for error in (
        errors.KafkaConnectionError,
        errors.NodeNotReadyError,
        errors.RequestTimedOutError,  # what `AIOKafkaClient.send` makes of a time-out
        errors.CorrelationIdError,
        TimeoutError,
        ConnectionResetError,
    ):
        assert issubclass(error, NoAnswer)
    # A look-up that the broker refuses is an answer, with a code.
    for refused, code in (
        (errors.GroupCoordinatorNotAvailableError, 15),
        (errors.GroupAuthorizationFailedError, 30),
    ):
        assert not issubclass(refused, NoAnswer)
        assert refused.errno == code


def test_the_client_makes_connections_by_lane_and_keeps_its_requests_in_order() -> None:
    assert (
        inspect.signature(AIOKafkaClient._get_conn).parameters["group"].kind is inspect.Parameter.KEYWORD_ONLY
    )
    for name in (
        "bootstrap",
        "close",
        "force_metadata_update",
        "set_topics",
        "get_random_node",
        "coordinator_lookup",
    ):
        assert callable(getattr(AIOKafkaClient, name))
    for name in ("brokers", "leader_for_partition", "partitions_for_topic"):
        assert callable(getattr(ClusterMetadata, name))
    assert "self._get_conn(node_id, group=group)" in inspect.getsource(AIOKafkaClient.ready)
    assert "await self._metadata_update(self.cluster, topics)" in inspect.getsource(
        AIOKafkaClient._md_synchronizer
    )
    assert "async with self._get_conn_lock" in inspect.getsource(AIOKafkaClient._get_conn)
    assert "self._md_update_waiter.set_result(None)" in inspect.getsource(
        AIOKafkaClient.force_metadata_update
    )
    assert '("bootstrap", ConnectionGroup.DEFAULT)' in inspect.getsource(AIOKafkaClient.bootstrap)
    source = inspect.getsource(AIOKafkaConnection._read)
    for used in ("reader.readexactly(4)", "self._handle_frame(resp)"):  # which `frames.py` does in its place
        assert used in source
    assert "self._reader is not None" in inspect.getsource(AIOKafkaConnection.connected)
    source = inspect.getsource(AIOKafkaConnection.send)
    for used in (  # as `ask` does
        "request.prepare(self._versions)",
        "self._next_correlation_id()",
        "self._writer.write(size + message)",
        "(correlation_id, request_struct, fut)",
    ):
        assert used in source
    source = inspect.getsource(AIOKafkaConnection._handle_frame)
    for used in (  # as `_Frames` does for calls
        "correlation_id, request, fut = self._requests[0]",
        "if not fut.done()",
        "self._last_action = time.monotonic()",
        "self._requests.popleft()",
    ):
        assert used in source
    for used in ("self._requests", "fut.set_exception"):  # what is under way fails with the connection
        assert used in inspect.getsource(AIOKafkaConnection.close)
    assert {member.name for member in CoordinationType} >= {"GROUP", "TRANSACTION"}
    assert CloseReason.CONNECTION_TIMEOUT


def test_a_call_refuses_a_broker_that_does_not_speak_its_version() -> None:
    call = Call(26, 5, b"", lambda fields: fields.int16())
    call.require({26: (0, 5)})
    with pytest.raises(Misconfigured, match="version 5 of Kafka request 26"):
        call.require({26: (0, 4)})
    with pytest.raises(Misconfigured):
        call.require({})


def test_a_call_is_sent_as_size_header_and_body() -> None:
    flexible = Call(26, 5, [b"ab", b"c"], lambda fields: fields.int16())
    assert flexible.message(7, b"me") == b"\x00\x00\x00\x10\x00\x1a\x00\x05\x00\x00\x00\x07\x00\x02me\x00abc"
    plain = Call(26, 5, b"abc", lambda fields: fields.int16(), flexible=False)
    assert plain.message(7, b"me") == b"\x00\x00\x00\x0f\x00\x1a\x00\x05\x00\x00\x00\x07\x00\x02meabc"


def test_a_call_reads_the_tagged_and_the_plain_header() -> None:
    flexible = Call(26, 5, b"", lambda fields: fields.int16())
    assert flexible.answer(b"\x00\x00\x00\x07" + b"\x01\x05\x02ab" + b"\x00\x09") == 9
    plain = Call(18, 3, b"", lambda fields: fields.int16(), flexible_answer=False)
    assert plain.answer(b"\x00\x00\x00\x07\x00\x09") == 9


@pytest.fixture
async def connection(kafka_broker: Broker) -> AsyncIterator[Connection]:
    connection = Connection(kafka_broker.bootstrap, Security())
    await connection.connect()
    yield connection
    await connection.close()


@pytest.mark.kafka
async def test_a_call_travels_on_a_connection_of_the_client(connection: Connection) -> None:
    abilities = await connection.send(connection.any_node(), api_versions(), Purpose.TRANSACTION)
    assert abilities.versions[26][1] >= 3
    client = connection._client
    assert (connection.any_node(), Purpose.TRANSACTION) in client._conns


@pytest.mark.kafka
async def test_lanes_are_connections_of_their_own(connection: Connection) -> None:
    node = connection.any_node()
    for lane in Purpose:
        await connection.send(node, api_versions(), lane)
    connections = {id(connection._client._conns[(node, lane)]) for lane in Purpose}
    assert len(connections) == len(Purpose)


@pytest.mark.kafka
async def test_watched_topics_add_up_and_their_leaders_are_known(connection: Connection) -> None:
    admin = KafkaAdmin(connection)
    await admin.create([TopicSpec("surface-a", 2), TopicSpec("surface-b", 1)])
    await connection.watch({"surface-a"})
    await connection.watch({"surface-b"})
    assert connection._client._topics == {"surface-a", "surface-b"}
    assert connection.partition_count("surface-a") == 2
    assert connection.leader(TopicPartition("surface-a", 1)) in connection.nodes()
    assert connection.leader(TopicPartition("surface-a", 9)) is None
    assert connection._client.cluster.leader_for_partition(ClientPartition("surface-c", 0)) is None
    await admin.delete(["surface-a", "surface-b"])


@pytest.mark.kafka
async def test_an_abandoned_request_leaves_its_connection_in_order(connection: Connection) -> None:
    """A cancelled commit must not take the lane down with it: the late answer is read and thrown away."""
    node = connection.any_node()
    await connection.send(node, api_versions(), Purpose.PRODUCE)
    before = connection._client._conns[(node, Purpose.PRODUCE)]
    sending = asyncio.ensure_future(connection.send(node, api_versions(), Purpose.PRODUCE))
    await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert (await connection.send(node, api_versions(), Purpose.PRODUCE)).versions
    assert connection._client._conns[(node, Purpose.PRODUCE)] is before


@pytest.mark.kafka
async def test_a_request_without_an_answer_ends_its_connection(connection: Connection) -> None:
    """What was asked on it is in doubt, and an answer that comes late must not be taken for another's."""
    node = connection.any_node()
    await connection.send(node, api_versions(), Purpose.PRODUCE)
    before = connection._client._conns[(node, Purpose.PRODUCE)]
    before._writer.transport.pause_reading()  # the answer lies in the socket, and nobody takes it
    connection._request_timeout_s = 0.05
    with pytest.raises(errors.RequestTimedOutError):
        await connection.send(node, api_versions(), Purpose.PRODUCE)
    assert not before.connected()
    connection._request_timeout_s = 10.0
    assert (await connection.send(node, api_versions(), Purpose.PRODUCE)).versions
    assert connection._client._conns[(node, Purpose.PRODUCE)] is not before
