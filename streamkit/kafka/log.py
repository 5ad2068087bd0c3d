"""Real Kafka behind the `Log` port: one cluster connection, and what is made from it."""

from typing import Protocol

from streamkit.config import Security
from streamkit.kafka.admin import KafkaAdmin
from streamkit.kafka.connection import Connection
from streamkit.kafka.membership import KafkaMembership
from streamkit.kafka.ports import MemberOptions, WriterOptions
from streamkit.kafka.reader import KafkaReader
from streamkit.kafka.transactions import KafkaTransactions
from streamkit.kafka.writer import KafkaWriter


class _Closable(Protocol):
    async def close(self) -> None: ...


class KafkaLog:
    """A Kafka cluster, found by its bootstrap addresses."""

    def __init__(self, brokers: str, security: Security, *, request_timeout_s: float = 10.0) -> None:
        self._connection = Connection(brokers, security, request_timeout_s=request_timeout_s)
        self._made: list[_Closable] = []
        self._readers: list[KafkaReader] = []

    async def connect(self) -> None:
        """Find the cluster.

        Raises:
            BrokerUnreachable: nobody answers.
            Misconfigured: it answers but refuses us (TLS, SASL).
        """
        await self._connection.connect()

    def reader(self, *, committed: bool) -> KafkaReader:
        """A new reader without partitions."""
        reader = KafkaReader(self._connection, committed=committed)
        # A worker makes and closes many readers in its life, one for each restore.
        self._readers = [other for other in self._readers if not other.closed]
        self._readers.append(reader)
        return reader

    def writer(self, options: WriterOptions) -> KafkaWriter:
        """A new writer; call `open` before the first commit."""
        writer = KafkaWriter(self._connection, options)
        self._made.append(writer)
        return writer

    def membership(self, options: MemberOptions) -> KafkaMembership:
        """A new membership, not joined yet."""
        membership = KafkaMembership(self._connection, options)
        self._made.append(membership)
        return membership

    def admin(self) -> KafkaAdmin:
        """The admin; shares the log's connections."""
        return KafkaAdmin(self._connection)

    def transactions(self) -> KafkaTransactions:
        """What may be done about writers that write no more; shares the log's connections."""
        return KafkaTransactions(self._connection)

    async def close(self) -> None:
        """Close everything that was made from this log; a member stops beating, but does not leave its group."""
        for made in (*self._readers, *reversed(self._made)):
            await made.close()
        self._readers.clear()
        self._made.clear()
        await self._connection.close()
