"""Fixtures for all tests: one real broker per run, started on first use."""

from collections.abc import Iterator

import pytest

from streamkit.testing.broker import Broker, start_broker


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[Broker]:
    """A real Kafka; if none can be started the tests that need it fail and say why."""
    with start_broker() as broker:
        yield broker
