"""Every contract test runs twice: on the log in memory and on real Kafka."""

import pytest

from tests.contract.harness import Cluster, KafkaCluster, MemoryCluster


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    if request.param == "memory":
        return MemoryCluster()
    return KafkaCluster(request.getfixturevalue("kafka_broker").bootstrap)
