"""The writer when its time is over: what it says, and that nothing is left usable."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from streamkit.errors import CommitTooSlow, Retry, WriterDead
from streamkit.kafka import transaction_calls as calls
from streamkit.kafka import writer as writer_module
from streamkit.kafka.wire import Call
from streamkit.kafka.writer import WriterState
from streamkit.model.commit import Commit
from streamkit.model.ids import TopicPartition
from streamkit.testing.broker import Broker
from tests.kafka.wiretap import Forward, Site, answers, never, site_on

pytestmark = pytest.mark.kafka

BOTH = pytest.mark.parametrize("version", [None, 0], ids=["tv2", "tv1"])
PRODUCE, POSITIONS, END = calls.PRODUCE_KEY, calls.TXN_OFFSET_COMMIT_KEY, calls.END_TXN_KEY


@pytest.fixture
async def site(kafka_broker: Broker) -> AsyncIterator[Site]:
    async with site_on(kafka_broker.bootstrap) as site:
        yield site


@pytest.mark.parametrize("key", [PRODUCE, POSITIONS, END])
async def test_a_commit_ends_at_its_deadline(site: Site, key: int) -> None:
    writer = site.writer(transaction_timeout_s=1.0)
    await writer.open()
    site.wire.rules[key] = never
    async with asyncio.timeout(5):
        with pytest.raises(WriterDead, match="in time"):
            await writer.commit(site.commit(writer, {0: [b"a"]}, 1))
    assert writer.state is WriterState.DEAD
    assert await site.visible() == {}


@BOTH
async def test_a_commit_of_too_many_requests_says_that_none_has_failed(
    site: Site, version: int | None
) -> None:
    """One that is merely slow may be made smaller; where a request has failed, a broker may be away."""

    async def slow(_call: Call[Any], forward: Forward) -> Any:
        await asyncio.sleep(0.4)
        return await forward()

    writer = site.writer(version=version, transaction_timeout_s=1.0)
    await writer.open()
    site.wire.rules[PRODUCE] = slow
    batches = [site.batch(writer, 0, [b"%d" % number]) for number in range(4)]
    with pytest.raises(CommitTooSlow, match="4 batches"):
        await writer.commit(Commit(batches, {}, site.member))
    site.wire.rules[PRODUCE] = answers(19)
    await writer.open()
    with pytest.raises(WriterDead, match="NOT_ENOUGH_REPLICAS") as away:
        await writer.commit(Commit(batches[:1], {}, site.member))
    assert type(away.value) is WriterDead


async def test_a_missing_topic_ends_at_the_deadline_by_name(site: Site) -> None:
    writer = site.writer(transaction_timeout_s=1.0)
    await writer.open()
    commit = site.commit(writer, {0: [b"a"]}, 1)
    commit.batches[0].partition = TopicPartition(f"{site.name}-nowhere", 0)
    with pytest.raises(WriterDead, match=r"nowhere.*no leader"):
        await writer.commit(commit)


async def test_open_ends_at_its_deadline_and_leaves_nothing_usable(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "OPEN_DEADLINE_S", 0.5)
    writer = site.writer()
    site.wire.rules[calls.INIT_PRODUCER_ID_KEY] = answers(51)
    with pytest.raises(Retry, match="CONCURRENT_TRANSACTIONS"):
        await writer.open()
    with pytest.raises(WriterDead):
        await writer.commit(site.commit(writer, {0: [b"a"]}))
    site.wire.rules.clear()
    await writer.open()
    await writer.commit(site.commit(writer, {0: [b"a"]}, 1))
