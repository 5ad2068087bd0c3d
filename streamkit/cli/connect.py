"""A connection to the cluster for the time of one command."""

import contextlib
from collections.abc import AsyncIterator

from streamkit.config import Settings
from streamkit.kafka.log import KafkaLog

# A person waits at the terminal: one answer within this time, or the address is wrong.
ANSWER_TIMEOUT_S = 5.0


@contextlib.asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[KafkaLog]:
    """A connection for one command.

    Raises:
        BrokerUnreachable: nobody answers.
    """
    cluster = KafkaLog(
        settings.brokers,
        settings.security,
        request_timeout_s=min(settings.request_timeout_s, ANSWER_TIMEOUT_S),
    )
    try:
        await cluster.connect()
        yield cluster
    finally:
        await cluster.close()
