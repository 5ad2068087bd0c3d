"""One cluster connection for everything in this package: who leads what, and a lane for each kind of work.

The broker serves one request per connection at a time, so fetching, producing and coordination each get a lane (a
connection of their own per broker): a long poll never delays a commit or a heartbeat.
All that is used of the client beyond its documented classes is named here, in `client.py` and in `frames.py`, and
pinned by `tests/kafka/test_client_surface.py`.
"""

import asyncio
import contextlib
import logging
import ssl
from enum import IntEnum
from typing import Any, TypeVar

from aiokafka import __version__ as client_version
from aiokafka.client import CoordinationType
from aiokafka.conn import CloseReason
from aiokafka.errors import (
    CorrelationIdError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NodeNotReadyError,
    RequestTimedOutError,
)

from streamkit.config import Security
from streamkit.errors import BrokerUnreachable, Misconfigured
from streamkit.kafka.client import Client
from streamkit.kafka.frames import CLIENT_ID, ask
from streamkit.kafka.outage import Outage
from streamkit.kafka.reconnects import Reconnects
from streamkit.kafka.refusal import explain
from streamkit.kafka.wire import Call
from streamkit.model.ids import TopicPartition

R = TypeVar("R")

# What "could not be sent, or no answer" looks like; after a request was written its outcome is in doubt.
NoAnswer = (
    KafkaConnectionError,
    KafkaTimeoutError,
    NodeNotReadyError,
    RequestTimedOutError,  # what the client makes of its own time-out; no sub-class of KafkaTimeoutError
    CorrelationIdError,
    asyncio.TimeoutError,
    OSError,
)

# How often a cluster without a broker that is up is looked at.
LOOK_AGAIN_S = 0.25

# The client logs requests, SASL bytes included, at DEBUG: never let it.
_client_log = logging.getLogger("aiokafka")
_client_log.setLevel(max(_client_log.level, logging.WARNING))


class Purpose(IntEnum):
    """Connections to a broker, by kind of work; numbers above the client's own groups."""

    METADATA = 0
    FETCH = 10
    PRODUCE = 11
    TRANSACTION = 12
    GROUP = 13
    HEARTBEAT = 14
    RESTORE = 15


class Connection:
    """A cluster, by its bootstrap addresses."""

    def __init__(self, brokers: str, security: Security, *, request_timeout_s: float = 10.0) -> None:
        self.brokers = brokers
        self._security = security
        self._request_timeout_s = request_timeout_s
        self._client: Any = None
        self._lanes = int(max(Purpose))
        self._outage = Outage(brokers)
        self._reconnects = Reconnects()

    def another(self) -> "Connection":
        """A connection of its own to the same cluster, not connected yet: for another event loop.

        Both tell of an outage as one, and both together spare a broker that is away.
        """
        twin = Connection(self.brokers, self._security, request_timeout_s=self._request_timeout_s)
        twin._outage, twin._reconnects = self._outage, self._reconnects
        return twin

    async def connect(self) -> None:
        """Find the cluster.

        Raises:
            BrokerUnreachable: nobody answers at any of the addresses, or nobody of the cluster is up.
            Misconfigured: a broker answers and refuses us, or what we need to know for TLS and SASL is not there.
        """
        arguments = {
            "client_id": CLIENT_ID,
            "request_timeout_ms": int(self._request_timeout_s * 1000),
            **_security_arguments(self._security),
        }
        client = Client(
            bootstrap_servers=self.brokers, outage=self._outage, reconnects=self._reconnects, **arguments
        )
        try:
            await client.bootstrap()
        except KafkaError as error:
            await client.close()
            hosts = [(host, port) for host, port, _family in client.hosts]
            raise await explain(self.brokers, hosts, self._security, arguments) from error
        self._client = client
        await self._find_nodes()

    async def _find_nodes(self) -> None:
        """Wait for the first broker that is up: one that has just begun, or lost its session, answers but names none."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._request_timeout_s):
                while not self.nodes():
                    await asyncio.sleep(LOOK_AGAIN_S)
                    await self.refresh()
                return
        await self.close()
        raise BrokerUnreachable(
            f'"{self.brokers}" answers, but no broker of its cluster is up',
            detail="it has just been started, or its controller does not hear of it",
            hint="look at the broker's log if this does not pass",
        )

    async def close(self) -> None:
        """Close every connection."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def send(self, node: int, call: Call[R], lane: int) -> R:
        """One request and its answer. Raises one of `NoAnswer` when there is none.

        A lane is one of `Purpose`, or one of the caller's own from `new_lane`.
        """
        connection = self._client.connected(node, lane) or await self._client.connect(node, lane)
        answer = ask(connection, call)
        timer = asyncio.get_running_loop().call_later(self._request_timeout_s, _expire, answer)
        try:
            return await answer
        except TimeoutError as error:
            connection.close(reason=CloseReason.CONNECTION_TIMEOUT)
            raise RequestTimedOutError from error
        finally:
            timer.cancel()

    def link(self, node: int, lane: int) -> object | None:
        """The connection that is up, as something to recognise it by; another one after it was lost."""
        found: object | None = self._client.connected(node, lane)
        return found

    def any_node(self) -> int:
        """Some broker of the cluster."""
        return int(self._client.get_random_node())

    def nodes(self) -> list[int]:
        """The ids of all brokers known now."""
        return sorted(broker.nodeId for broker in self._client.cluster.brokers())

    def leader(self, partition: TopicPartition) -> int | None:
        """The broker that leads this partition, as far as known."""
        # The client's own type has the same two names, and asked for every batch it is not worth making.
        node = self._client.cluster.leader_for_partition(partition)
        return None if node is None or node < 0 else int(node)

    def partition_count(self, topic: str) -> int | None:
        """Partitions of a watched topic, as far as known."""
        partitions = self._client.cluster.partitions_for_topic(topic)
        return len(partitions) if partitions else None

    async def watch(self, topics: set[str]) -> None:
        """Keep the metadata of these topics, in addition to those watched before."""
        known = self._client._topics  # noqa: SLF001 - pinned by the surface test
        if not topics <= known:
            await self._client.set_topics(known | topics)

    async def refresh(self) -> bool:
        """Ask for metadata now; False if no broker answered."""
        return bool(await self._client.force_metadata_update())

    def is_forbidden(self, topic: str) -> bool:
        """Whether the last metadata said that we may not see this topic."""
        return topic in self._client.cluster.unauthorized_topics

    def new_lane(self) -> int:
        """A lane of the caller's own: for requests that wait long at the broker, and would hold up others."""
        self._lanes += 1
        return self._lanes

    def drop(self, lane: int) -> None:
        """Close this lane's connections to all brokers; the next request on it makes new ones."""
        connections = self._client._conns if self._client is not None else {}  # noqa: SLF001 - see above
        for name in [name for name in connections if name[1] == lane]:
            connections.pop(name).close()

    async def coordinator(self, lane: Purpose, name: str) -> int:
        """The broker that coordinates this group (`Purpose.GROUP`) or transactional id (`Purpose.TRANSACTION`).

        Raises the client's retriable errors.
        """
        kind = CoordinationType.GROUP if lane is Purpose.GROUP else CoordinationType.TRANSACTION
        return int(await self._client.coordinator_lookup(kind, name))


def _expire(answer: "asyncio.Future[Any]") -> None:
    if not answer.done():
        answer.set_exception(TimeoutError())


def _security_arguments(security: Security) -> dict[str, Any]:
    arguments: dict[str, Any] = {"security_protocol": security.protocol}
    if security.protocol in ("SSL", "SASL_SSL"):
        arguments["ssl_context"] = _tls(security)
    if security.protocol.startswith("SASL"):
        password = security.password()
        if security.username is None or password is None:
            raise Misconfigured(
                f"security protocol {security.protocol} needs a user name and a password",
                hint=f"set security.username, and {security.password_place}",
            )
        arguments |= {
            "sasl_mechanism": security.sasl_mechanism,
            "sasl_plain_username": security.username,
            "sasl_plain_password": str(password),
        }
    return arguments


def _tls(security: Security) -> ssl.SSLContext:
    """Whom we trust, and who we are."""
    what = f'security.ca_file "{security.ca_file}"'
    try:
        context = ssl.create_default_context(cafile=security.ca_file)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if security.certificate_file is not None:
            what = f'security.certificate_file "{security.certificate_file}"'
            if security.key_file is not None:
                what += f' with security.key_file "{security.key_file}"'
            context.load_cert_chain(security.certificate_file, security.key_file, _no_pass_phrase)
    except OSError as error:  # which an ssl.SSLError is too
        raise Misconfigured(
            f"{what} cannot be used",
            detail=str(error),
            hint="it must be PEM, and this user must be allowed to read it",
        ) from error
    return context


def _no_pass_phrase() -> str:
    """Called for a key that is encrypted; without it OpenSSL would ask at the terminal, and wait."""
    raise OSError("the key is encrypted, and there is no setting for its pass phrase")


__all__ = ["Connection", "NoAnswer", "Purpose", "client_version"]
