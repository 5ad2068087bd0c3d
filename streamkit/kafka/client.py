"""The client under us: aiokafka's, with its care for connections and metadata mended where it would hurt a worker.

What differs: it never lets a broker create a topic by asking for it; a broker that stalls holds up nobody who wants to
connect to another; an update of metadata that was asked for is never slept over; a connection that has just ended is
not handed out; a broker that is away is tried with growing pauses; and connections receive as `frames.py` tells.
"""

import asyncio
import random
from typing import Any
from weakref import WeakValueDictionary

from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.errors import KafkaError, NodeNotReadyError
from aiokafka.protocol.metadata import MetadataRequest

from streamkit.kafka.frames import receive_whole
from streamkit.kafka.outage import Outage
from streamkit.kafka.reconnects import Reconnects

# Where the client keeps the connection by which it found the cluster, until it knows a broker that is up.
_BOOTSTRAP = ("bootstrap", ConnectionGroup.DEFAULT)


class Client(AIOKafkaClient):  # type: ignore[misc] # the client has no types
    """One cluster: its connections and its metadata."""

    def __init__(
        self, *, outage: Outage | None = None, reconnects: Reconnects | None = None, **arguments: Any
    ) -> None:
        super().__init__(**arguments)
        # Shared by the clients of a worker, each of which has an event loop of its own.
        self._outage = outage or Outage(str(arguments.get("bootstrap_servers", "")))
        self._reconnects = reconnects or Reconnects()
        self._locks: WeakValueDictionary[tuple[Any, int], asyncio.Lock] = WeakValueDictionary()

    def connected(self, node_id: int, group: int) -> Any | None:
        """The connection that is up, if there is one."""
        connection = self._conns.get((node_id, group))
        return connection if connection is not None and connection.connected() else None

    async def connect(self, node_id: int, group: int) -> Any:
        """A connection that is up; raises one of `NoAnswer` if there can be none now."""
        connection = await self._get_conn(node_id, group=group)
        if connection is None or not connection.connected():
            raise NodeNotReadyError(f"no connection to broker {node_id}")
        return connection

    @property
    def _get_conn_lock(self) -> asyncio.Lock:
        """Nobody else's: who wants the same connection waits in `_get_conn`, everybody else need not."""
        return asyncio.Lock()

    async def _get_conn(self, node_id: Any, **how: Any) -> Any:
        group = how.get("group", ConnectionGroup.DEFAULT)
        lock = self._locks.setdefault((node_id, group), asyncio.Lock())
        async with lock:
            is_new = self.connected(node_id, group) is None
            if is_new and not self._reconnects.is_due(node_id):
                return None
            connection = await super()._get_conn(node_id, **how)
        if connection is None:
            self._reconnects.failed(node_id)
            return None
        if is_new:  # one that was up already says nothing about others that cannot be made
            self._reconnects.succeeded(node_id)
        receive_whole(connection)
        return connection

    def force_metadata_update(self) -> Any:
        """As the client does; but one that is asked for while another is under way must follow it, not sleep."""
        if not self._md_update_waiter.done():
            self._md_update_waiter.set_result(None)
        return super().force_metadata_update()

    async def _metadata_update(self, cluster_metadata: Any, topics: Any) -> bool:
        """Ask the brokers, one after the other, until one tells; False if none did, or knows none that is up."""
        request = MetadataRequest(list(topics or ()), allow_auto_topic_creation=False)
        nodes = [broker.nodeId for broker in self.cluster.brokers()]
        nodes += [_BOOTSTRAP[0]] if _BOOTSTRAP in self._conns else []
        trouble = "no connection"
        for node_id in random.sample(nodes, len(nodes)):
            connection = await self._get_conn(node_id)
            if connection is None:
                continue
            try:
                metadata = await connection.send(request)
            # RuntimeError is uvloop's word for a transport that was closed a moment ago.
            except (KafkaError, TimeoutError, RuntimeError) as error:
                trouble = f"broker {node_id}: {error!r}"
                continue
            if not metadata.brokers:
                return False
            self._outage.over()
            cluster_metadata.update_metadata(metadata)
            if _BOOTSTRAP in self._conns:
                self._conns.pop(_BOOTSTRAP).close()
            return True
        self._outage.failed(trouble)
        cluster_metadata.failed_update(None)
        return False
