"""One client of the in-memory cluster: makes readers, writers, memberships and an admin that share its network."""

from streamkit.errors import BrokerUnreachable
from streamkit.kafka.ports import MemberOptions, WriterOptions
from streamkit.testing.memory.admin import MemoryAdmin
from streamkit.testing.memory.broker import MemoryBroker
from streamkit.testing.memory.client import Client
from streamkit.testing.memory.endings import MemoryEndings
from streamkit.testing.memory.membership import MemoryMembership
from streamkit.testing.memory.network import Network, NoReply
from streamkit.testing.memory.reader import MemoryReader
from streamkit.testing.memory.writer import MemoryWriter

# What one fetch brings of a partition: as much as the real client asks for.
FETCH_BYTES_MAX = 1 << 20


class MemoryLog:
    """The `Log` port in memory: one per worker, all on the same broker.

    `fetch_bytes_max` bounds what one poll hands out of a partition; a simulation makes it small, so that more
    things happen in between.
    """

    def __init__(
        self, broker: MemoryBroker, network: Network | None = None, *, fetch_bytes_max: int = FETCH_BYTES_MAX
    ) -> None:
        self.broker = broker
        self.network = Network() if network is None else network
        self._client = Client(broker, self.network)
        self._fetch_bytes_max = fetch_bytes_max
        self._memberships: list[MemoryMembership] = []
        self._readers: list[MemoryReader] = []
        self._writers: list[MemoryWriter] = []

    async def connect(self) -> None:
        """Find the cluster.

        Raises:
            BrokerUnreachable: the network is cut.
        """
        try:
            await self._client.ask("log.connect", lambda: None)
        except NoReply:
            raise BrokerUnreachable("nobody answers", where="the in-memory broker") from None

    def reader(self, *, committed: bool) -> MemoryReader:
        """A new reader without partitions."""
        reader = MemoryReader(self._client, self._fetch_bytes_max, committed=committed)
        self._readers.append(reader)
        return reader

    def writer(self, options: WriterOptions) -> MemoryWriter:
        """A new writer; call `open` before the first commit."""
        writer = MemoryWriter(self._client, options)
        self._writers.append(writer)
        return writer

    def membership(self, options: MemberOptions) -> MemoryMembership:
        """A new membership, not joined yet."""
        membership = MemoryMembership(self._client, options)
        self._memberships.append(membership)
        return membership

    def admin(self) -> MemoryAdmin:
        """The admin."""
        return MemoryAdmin(self._client)

    def transactions(self) -> MemoryEndings:
        """What may be done about writers that write no more."""
        return MemoryEndings(self._client)

    def kill(self) -> None:
        """End this client as kill -9 does: whatever it left open stays open until it is fenced or times out."""
        self.network.kill()
        self._stop()

    async def close(self) -> None:
        """Close everything that was made from this log, without leaving groups."""
        self._stop()
        for reader in self._readers:
            await reader.close()
        for writer in self._writers:
            await writer.close()

    def _stop(self) -> None:
        for membership in self._memberships:
            membership.stop()
