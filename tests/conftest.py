"""Fixtures for all tests: one real broker per run, started on first use."""

from collections.abc import Iterator

import pytest

from streamkit.testing.broker import Broker, start_broker


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[Broker]:
    """A real Kafka; if none can be started the tests that need it fail and say why."""
    # A machine that stalls for seconds must not fence the one broker that most tests share: not every client that they
    # use beside ours waits for its return. Tests of that have a broker of their own.
    with start_broker(extra={"broker.session.timeout.ms": "18000"}) as broker:
        yield broker
