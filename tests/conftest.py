"""Fixtures for all tests: one real broker per run, started on first use."""

from collections.abc import Iterator

import pytest
import structlog

from streamkit.testing.broker import Broker, start_broker


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[Broker]:
    """A real Kafka; if none can be started the tests that need it fail and say why."""
    # A machine that stalls for seconds must not fence the one broker that most tests share: not every client that they
    # use beside ours waits for its return. Tests of that have a broker of their own.
    with start_broker(extra={"broker.session.timeout.ms": "18000"}) as broker:
        yield broker


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """What a test makes of the logs ends with it: `capture_logs` leaves structlog configured, and a harness then logs."""
    was_configured = structlog.is_configured()
    yield
    if not was_configured:
        structlog.reset_defaults()
