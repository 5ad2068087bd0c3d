"""The writer on a real broker, read back by a client that is not ours. The port itself: `tests/contract/`."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from streamkit.errors import Bug, DataRefused, Fenced, Misconfigured, WriterDead
from streamkit.kafka import delivery
from streamkit.kafka import transaction_calls as calls
from streamkit.kafka.connection import Purpose
from streamkit.kafka.writer import WriterState
from streamkit.model.commit import Commit, Guarantee, Member
from streamkit.testing.broker import Broker
from tests.kafka.wiretap import Hold, Site, answers, first, lost_request, site_on

pytestmark = pytest.mark.kafka

BOTH = pytest.mark.parametrize("version", [None, 0], ids=["tv2", "tv1"])


@pytest.fixture
async def site(kafka_broker: Broker) -> AsyncIterator[Site]:
    async with site_on(kafka_broker.bootstrap) as site:
        yield site


@BOTH
async def test_a_commit_is_visible_on_all_partitions_with_its_position(
    site: Site, version: int | None
) -> None:
    writer = site.writer(version=version)
    await writer.open()
    ends = await writer.commit(site.commit(writer, {0: [b"a", b"b"], 1: [b"c"], 3: [b"d"]}, 7))
    assert ends == {site.to(0): 2, site.to(1): 1, site.to(3): 1}
    assert await site.visible() == {0: [b"a", b"b"], 1: [b"c"], 3: [b"d"]}
    assert await site.position() == 7


async def test_a_new_cluster_speaks_transaction_version_2(site: Site) -> None:
    await site.require_version_2()
    writer = site.writer()
    await writer.open()
    await writer.commit(site.commit(writer, {0: [b"a"]}, 1))
    sent = {call.key: call.version for call in site.wire.seen}
    assert (sent[calls.PRODUCE_KEY], sent[calls.TXN_OFFSET_COMMIT_KEY], sent[calls.END_TXN_KEY]) == (12, 5, 5)
    assert calls.ADD_PARTITIONS_KEY not in sent


async def test_an_older_cluster_gets_an_epoch_per_transaction(site: Site) -> None:
    writer = site.writer(version=0)
    await writer.open()
    for number in range(3):
        await writer.commit(site.commit(writer, {0: [b"%d" % number]}, number))
    for key in (calls.ADD_PARTITIONS_KEY, calls.ADD_OFFSETS_KEY, calls.END_TXN_KEY):
        assert len({call.body for call in site.wire.seen if call.key == key}) == 3  # the epoch is in the body
    sent = {call.key: call.version for call in site.wire.seen}
    assert (sent[calls.PRODUCE_KEY], sent[calls.TXN_OFFSET_COMMIT_KEY], sent[calls.END_TXN_KEY]) == (11, 3, 4)


async def test_the_transaction_version_is_asked_for_at_every_open(site: Site) -> None:
    writer = site.writer()
    for count in (1, 2, 3):
        await writer.open()
        assert site.wire.sent().count(calls.API_VERSIONS_KEY) == count


@BOTH
async def test_hundreds_of_commits_arrive_exactly_once_and_in_order(site: Site, version: int | None) -> None:
    writer = site.writer(version=version)
    await writer.open()
    count = 300 if version is None else 100
    sent: dict[int, list[bytes]] = {partition: [] for partition in range(4)}
    for number in range(count):
        values = {p: [b"%d-%d-%d" % (number, p, i) for i in range(1 + (number + p) % 3)] for p in range(4)}
        ends = await writer.commit(site.commit(writer, values, number))
        for partition, part in values.items():
            sent[partition] += part
            # One marker per earlier commit lies between the records.
            assert ends[site.to(partition)] == len(sent[partition]) + number
    assert await site.visible() == sent
    assert await site.position() == count - 1


@BOTH
async def test_batches_of_one_partition_go_in_rounds(site: Site, version: int | None) -> None:
    writer = site.writer(version=version)
    await writer.open()
    order = [0, 1, 0, 0, 2, 1, 0]
    batches = [site.batch(writer, p, [b"%d" % i, b"%d'" % i]) for i, p in enumerate(order)]
    ends = await writer.commit(Commit(batches, {}, site.member))
    assert ends == {site.to(0): 8, site.to(1): 4, site.to(2): 2}
    assert site.wire.sent().count(calls.PRODUCE_KEY) == 4
    want = {
        p: [b"%d%s" % (i, s) for i, o in enumerate(order) if o == p for s in (b"", b"'")] for p in (0, 1, 2)
    }
    assert await site.visible() == want


@BOTH
async def test_a_newer_holder_of_the_id_fences_the_older_and_stays(site: Site, version: int | None) -> None:
    older, newer = site.writer(version=version), site.writer(version=version)
    await older.open()
    await older.commit(site.commit(older, {0: [b"old"]}, 1))
    await newer.open()
    with pytest.raises(Fenced):
        await older.commit(site.commit(older, {0: [b"zombie"]}, 9))
    assert older.state is WriterState.DEAD
    # The zombie must not have taken the id back by its own attempt.
    await newer.commit(site.commit(newer, {0: [b"new"]}, 2))
    assert await site.visible() == {0: [b"old", b"new"]}
    assert await site.position() == 2


@BOTH
async def test_a_holder_fenced_in_the_middle_of_its_commit_leaves_nothing(
    site: Site, version: int | None
) -> None:
    writer = site.writer(version=version)
    await writer.open()
    hold = site.wire.rules[calls.END_TXN_KEY] = Hold()
    committing = asyncio.ensure_future(writer.commit(site.commit(writer, {0: [b"a"], 1: [b"b"]}, 5)))
    await hold.reached.wait()
    await site.admin.fence(writer.writer_id)
    hold.go.set()
    with pytest.raises(Fenced):
        await committing
    assert await site.visible() == {}
    assert await site.position() is None


@BOTH
@pytest.mark.parametrize("positions", [True, False], ids=["with positions", "batches only"])
async def test_a_former_generation_is_fenced(site: Site, version: int | None, *, positions: bool) -> None:
    writer = site.writer(version=version)
    await writer.open()
    former = site.member
    await site.rejoin()
    assert site.member.generation > former.generation
    batches = [site.batch(writer, 0, [b"zombie"])]
    with pytest.raises(Fenced):
        await writer.commit(Commit(batches, {site.source(): 9} if positions else {}, former))
    await writer.open()
    await writer.commit(site.commit(writer, {0: [b"fresh"]}, 3))
    assert await site.visible() == {0: [b"fresh"]}
    assert await site.position() == 3


async def test_positions_are_never_sent_without_a_generation(site: Site) -> None:
    writer = site.writer()
    await writer.open()
    with pytest.raises(Bug):
        await writer.commit(Commit([], {site.source(): 1}, Member(site.member.group, "", -1)))
    assert writer.state is WriterState.READY
    # Batches alone may come from somebody who is in no group, such as a tool.
    await writer.commit(Commit([site.batch(writer, 0, [b"a"])], {}, Member("", "", -1)))
    assert await site.visible() == {0: [b"a"]}


@BOTH
async def test_a_record_too_large_is_refused_by_name_and_nothing_is_visible(
    site: Site, version: int | None
) -> None:
    writer = site.writer(version=version)
    await writer.open()
    large = site.commit(writer, {0: [b"fine"], 2: [b"x" * 1_100_000]}, 4)
    with pytest.raises(DataRefused, match=r"out\[2\]"):
        await writer.commit(large)
    with pytest.raises(WriterDead):
        await writer.commit(site.commit(writer, {0: [b"more"]}))
    await writer.open()
    await writer.commit(site.commit(writer, {0: [b"after"]}, 5))
    assert await site.visible() == {0: [b"after"]}


@BOTH
async def test_many_full_partitions_go_in_several_requests_and_a_lost_one_is_sent_again(
    site: Site, version: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "REQUEST_BYTES_MAX", 25_000)
    writer = site.writer(version=version)
    await writer.open()
    site.wire.rules[calls.PRODUCE_KEY] = first(1, lost_request)
    values = {number: [b"%d" % number * 10_000] for number in range(4)}
    await writer.commit(site.commit(writer, values, 4))
    assert await site.visible() == values
    sizes = [len(call.body) for call in site.wire.seen if call.key == calls.PRODUCE_KEY]
    assert len(sizes) == 3  # the first one twice: what is behind a lost one waits
    assert max(sizes) < 26_000


@BOTH
@pytest.mark.parametrize("sent", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    "key",
    [calls.PRODUCE_KEY, calls.TXN_OFFSET_COMMIT_KEY, calls.END_TXN_KEY],
    ids=["produce", "positions", "end"],
)
async def test_a_cancelled_commit_kills_the_epoch_and_open_revives(
    site: Site, version: int | None, key: int, *, sent: bool
) -> None:
    writer = site.writer(version=version)
    await writer.open()
    hold = site.wire.rules[key] = Hold(sent=sent)
    committing = asyncio.ensure_future(writer.commit(site.commit(writer, {0: [b"a"], 1: [b"a"]}, 1)))
    await hold.reached.wait()
    with pytest.raises(Bug):
        await writer.commit(site.commit(writer, {0: [b"at once"]}))
    with pytest.raises(Bug):
        await writer.open()
    committing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await committing
    with pytest.raises(WriterDead):
        await writer.commit(site.commit(writer, {0: [b"no"]}))
    site.wire.rules.clear()
    await writer.open()
    await writer.commit(site.commit(writer, {0: [b"b"]}, 2))
    landed = key == calls.END_TXN_KEY and sent
    assert await site.visible() == ({0: [b"a", b"b"], 1: [b"a"]} if landed else {0: [b"b"]})
    assert await site.position() == 2


@BOTH
async def test_a_delayed_end_can_not_touch_the_next_transaction(site: Site, version: int | None) -> None:
    writer = site.writer(version=version)
    await writer.open()
    await writer.commit(site.commit(writer, {0: [b"one"]}, 1))
    late = next(call for call in site.wire.seen if call.key == calls.END_TXN_KEY)
    hold = site.wire.rules[calls.END_TXN_KEY] = Hold()
    committing = asyncio.ensure_future(writer.commit(site.commit(writer, {0: [b"two"], 1: [b"two"]}, 2)))
    await hold.reached.wait()
    site.wire.rules.clear()
    coordinator = await site.wire.coordinator(Purpose.TRANSACTION, writer.writer_id)
    answer = await site.wire.send(coordinator, late, Purpose.TRANSACTION)
    assert answer.codes[0] in (47, 90)
    committing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await committing
    assert await site.visible() == {0: [b"one"]}
    assert await site.position() == 1


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE])
async def test_without_transactions_the_order_is_the_guarantee(site: Site, guarantee: Guarantee) -> None:
    writer = site.writer(guarantee=guarantee)
    await writer.open()
    for number in range(5):
        ends = await writer.commit(site.commit(writer, {0: [b"%d" % number], 1: [b"x"]}, number))
        assert ends == {site.to(0): number + 1, site.to(1): number + 1}
    steps = [key for key in site.wire.sent() if key in (calls.PRODUCE_KEY, calls.OFFSET_COMMIT_KEY)]
    pair = [calls.PRODUCE_KEY, calls.OFFSET_COMMIT_KEY]
    assert steps == (pair if guarantee is Guarantee.AT_LEAST_ONCE else pair[::-1]) * 5
    former = site.member
    await site.rejoin()
    with pytest.raises(Fenced):
        await writer.commit(Commit([site.batch(writer, 0, [b"late"])], {site.source(): 9}, former))
    assert await site.position() == 4
    seen = await site.visible(fence=None)
    late = [b"late"] if guarantee is Guarantee.AT_LEAST_ONCE else []
    assert seen == {0: [b"%d" % number for number in range(5)] + late, 1: [b"x"] * 5}


async def test_a_timeout_that_the_broker_does_not_allow_is_misconfigured(site: Site) -> None:
    with pytest.raises(Misconfigured, match="INVALID_TRANSACTION_TIMEOUT"):
        await site.writer(transaction_timeout_s=100_000).open()


async def test_open_survives_a_coordinator_that_loads_moves_and_vanishes(site: Site) -> None:
    writer = site.writer()
    for rule in (lost_request, *(answers(code) for code in (14, 15, 16, 51))):
        site.wire.rules[calls.INIT_PRODUCER_ID_KEY] = first(2, rule)
        await writer.open()
    await writer.commit(site.commit(writer, {0: [b"a"]}, 1))


async def test_a_closed_writer_stays_closed(site: Site) -> None:
    writer = site.writer()
    await writer.open()
    hold = site.wire.rules[calls.PRODUCE_KEY] = Hold()
    committing = asyncio.ensure_future(writer.commit(site.commit(writer, {0: [b"a"]}, 1)))
    await hold.reached.wait()
    await writer.close()
    await writer.close()
    committing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await committing
    assert writer.state is WriterState.CLOSED
    for attempt in (writer.open(), writer.commit(site.commit(writer, {}))):
        with pytest.raises(Bug):
            await attempt
