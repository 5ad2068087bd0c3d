"""Fixtures for tests of the client against a real broker."""

import pytest

from streamkit.model.ids import TopicPartition
from streamkit.testing.broker import Broker
from tests.kafka.auditor import create_topic


@pytest.fixture
def place(kafka_broker: Broker) -> TopicPartition:
    """The one partition of a topic of the test's own."""
    return TopicPartition(create_topic(kafka_broker.bootstrap), 0)
