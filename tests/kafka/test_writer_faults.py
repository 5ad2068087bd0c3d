"""The writer when answers are lost, late or bad: what is committed, what is doubt, and that nothing comes twice."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from streamkit.errors import (
    DataRefused,
    Fenced,
    Misconfigured,
    StreamkitError,
    WriterDead,
)
from streamkit.kafka import coordinator as coordinator_module
from streamkit.kafka import transaction_calls as calls
from streamkit.kafka import writer as writer_module
from streamkit.kafka.connection import Purpose
from streamkit.kafka.produce_calls import Ack
from streamkit.kafka.wire import Call
from streamkit.kafka.writer import KafkaWriter, WriterState
from streamkit.model.commit import Guarantee
from streamkit.model.ids import TopicPartition
from streamkit.testing.broker import Broker
from tests.kafka.wiretap import (
    Forward,
    Rule,
    Site,
    answers,
    answers_after,
    first,
    lost_answer,
    lost_request,
    produced,
    site_on,
)

pytestmark = pytest.mark.kafka

BOTH = pytest.mark.parametrize("version", [None, 0], ids=["tv2", "tv1"])
PRODUCE, POSITIONS, END = calls.PRODUCE_KEY, calls.TXN_OFFSET_COMMIT_KEY, calls.END_TXN_KEY
PREPARING = (calls.INIT_PRODUCER_ID_KEY, calls.ADD_PARTITIONS_KEY, calls.ADD_OFFSETS_KEY)


@pytest.fixture
async def site(kafka_broker: Broker) -> AsyncIterator[Site]:
    async with site_on(kafka_broker.bootstrap) as site:
        yield site


async def commit_under(site: Site, key: int, rule: Rule, version: int | None = None) -> None:
    """Two plain commits around one on which the rule lies."""
    writer = site.writer(version=version)
    await writer.open()
    await writer.commit(site.commit(writer, {0: [b"1"], 1: [b"1"]}, 1))
    site.wire.rules[key] = rule
    ends = await writer.commit(site.commit(writer, {0: [b"2", b"2"], 1: [b"2"]}, 2))
    assert ends == {site.to(0): 4, site.to(1): 3}
    site.wire.rules.clear()
    if writer.needs_renewal:
        await renew(writer)
    await writer.commit(site.commit(writer, {0: [b"3"], 1: [b"3"]}, 3))


async def renew(writer: KafkaWriter) -> None:
    """What a worker does after a loss: another id."""
    await writer.open(f"{writer.writer_id}+")
    assert not writer.needs_renewal


async def check_all_three(site: Site) -> None:
    assert await site.visible() == {0: [b"1", b"2", b"2", b"3"], 1: [b"1", b"2", b"3"]}
    assert await site.position() == 3


async def dead_under(site: Site, key: int, rule: Rule, version: int | None = None) -> StreamkitError:
    """The error of a commit on which the rule lies; then a new epoch works."""
    writer = site.writer(version=version)
    await writer.open()
    await writer.commit(site.commit(writer, {0: [b"1"], 1: [b"1"]}, 1))
    site.wire.rules[key] = rule
    with pytest.raises(StreamkitError) as caught:
        await writer.commit(site.commit(writer, {0: [b"2"], 1: [b"2"]}, 2))
    assert writer.state is WriterState.DEAD
    with pytest.raises(WriterDead):
        await writer.commit(site.commit(writer, {0: [b"no"]}))
    site.wire.rules.clear()
    await writer.open()
    await writer.commit(site.commit(writer, {0: [b"3"], 1: [b"3"]}, 3))
    return caught.value


# A leader that was lost, or is not the leader any more; and one that is there and merely cannot do it now.
LOST = [lost_request, lost_answer, *(answers(code) for code in (3, 5, 6, 9))]
BUSY = [*(answers(code) for code in (19, 51, 56)), *(answers_after(code) for code in (7, 20, 56))]


@BOTH
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
async def test_a_batch_is_sent_again_as_the_same_bytes(
    site: Site, version: int | None, is_first: bool
) -> None:
    """Nothing of an id can have been forgotten before its first transaction has ended; later, only a leader may be busy."""
    rules = [*LOST, *BUSY] if is_first else BUSY
    writer = site.writer(version=version)
    await writer.open()
    for number, rule in enumerate(rules):
        if is_first:
            await renew(writer)
        site.wire.seen.clear()
        site.wire.rules[PRODUCE] = first(2, rule)
        ends = await writer.commit(site.commit(writer, {0: [b"%d" % number, b"."], 1: [b"."]}, number))
        if not is_first:  # another id need not wait until the markers of the one before are there
            assert ends == {site.to(0): 3 * number + 2, site.to(1): 2 * number + 1}
        # At least: the broker itself may ask for one more try.
        sent = [call.body for call in site.wire.seen if call.key == PRODUCE]
        assert len(sent) >= 3
        assert len(set(sent)) == 1
    want = [part for number in range(len(rules)) for part in (b"%d" % number, b".")]
    assert await site.visible() == {0: want, 1: [b"."] * len(rules)}


@BOTH
async def test_an_id_does_not_outlive_the_leader_of_a_partition(site: Site, version: int | None) -> None:
    for rule in LOST:
        error = await dead_under(site, PRODUCE, first(1, rule), version)
        assert type(error) is WriterDead
        assert error.where in (str(site.to(0)), str(site.to(1)))
    assert await site.visible() == {0: [b"1", b"3"] * len(LOST), 1: [b"1", b"3"] * len(LOST)}


async def test_an_id_does_not_outlive_a_change_of_leaders(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = site.writer()
    await writer.open()
    await writer.commit(site.commit(writer, {0: [b"1"]}, 1))
    leader = site.wire.leader(site.to(0))
    assert leader is not None
    monkeypatch.setattr(type(site.wire), "leader", lambda _self, _partition: leader + 1)
    with pytest.raises(WriterDead, match="another broker leads it now"):
        await writer.commit(site.commit(writer, {0: [b"2"]}, 2))
    monkeypatch.undo()
    await renew(writer)
    await writer.commit(site.commit(writer, {0: [b"3"]}, 3))
    assert await site.visible() == {0: [b"1", b"3"]}


@pytest.mark.parametrize("lane", [Purpose.PRODUCE, Purpose.TRANSACTION, Purpose.GROUP])
async def test_an_id_does_not_outlive_a_connection_that_was_lost_between_two_transactions(
    site: Site, lane: Purpose
) -> None:
    writer = site.writer()
    await writer.open()
    site.wire.drop(lane)
    assert not writer.needs_renewal  # nothing of it can be open yet
    await writer.commit(site.commit(writer, {0: [b"1"]}, 1))
    assert not writer.needs_renewal
    site.wire.drop(lane)
    assert writer.needs_renewal
    with pytest.raises(WriterDead, match="another writer id"):
        await writer.commit(site.commit(writer, {0: [b"2"]}, 2))
    await renew(writer)
    await writer.commit(site.commit(writer, {0: [b"3"]}, 3))
    assert await site.visible() == {0: [b"1", b"3"]}


async def test_an_id_is_given_up_before_its_epochs_come_to_their_end(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "EPOCH_MAX", 3)
    writer = site.writer()
    await writer.open()
    commits = 0
    while not writer.needs_renewal:
        await writer.commit(site.commit(writer, {0: [b"."]}, commits))
        commits += 1
    assert 0 < commits <= 5
    await renew(writer)


async def test_only_what_is_not_acknowledged_is_sent_again(site: Site) -> None:
    moved: list[int] = []

    async def one_moves(_call: Call[Any], forward: Forward) -> Any:
        done = await forward()
        # The broker may refuse the first try as a whole; only a half that it has taken can be half forgotten.
        if moved or any(ack.code for ack in done):
            return done
        moved.append(1)
        return [ack._replace(code=20) if ack.partition.partition == 1 else ack for ack in done]

    await commit_under(site, PRODUCE, one_moves)
    assert moved
    assert [site.to(1)] in [produced(call) for call in site.wire.seen if call.key == PRODUCE]
    assert [site.to(0)] not in [produced(call) for call in site.wire.seen if call.key == PRODUCE]
    await check_all_three(site)


async def test_a_duplicate_counts_only_for_what_was_sent_again(site: Site) -> None:
    replies = iter((answers_after(20), answers_after(46)))

    async def in_turn(call: Call[Any], forward: Forward) -> Any:
        rule = next(replies, None)
        return await (forward() if rule is None else rule(call, forward))

    await commit_under(site, PRODUCE, in_turn)
    await check_all_three(site)
    assert isinstance(await dead_under(site, PRODUCE, first(1, answers_after(46))), WriterDead)


@pytest.mark.parametrize("change", ["missing", "foreign", "twice", "no offset"])
async def test_every_batch_needs_its_own_acknowledgement(site: Site, change: str) -> None:
    async def bend(_call: Call[Any], forward: Forward) -> list[Ack]:
        acks: list[Ack] = await forward()
        match change:
            case "missing":
                return acks[:-1]
            case "foreign":
                return [*acks[:-1], acks[-1]._replace(partition=TopicPartition("other", 0))]
            case "twice":
                return [*acks, acks[0]]
            case _:
                return [ack._replace(base_offset=-1) for ack in acks]

    assert isinstance(await dead_under(site, PRODUCE, bend), WriterDead)
    assert await site.visible() == {0: [b"1", b"3"], 1: [b"1", b"3"]}


FINAL: dict[int, dict[int, type[StreamkitError]]] = {
    PRODUCE: {
        **dict.fromkeys((10, 18, 32, 87), DataRefused),
        **dict.fromkeys((17, 29, 31, 35, 53), Misconfigured),
        **dict.fromkeys((-1, 2, 45, 48, 59, 120, 4711), WriterDead),
        **dict.fromkeys((47, 49, 90), Fenced),
    },
    POSITIONS: {
        **dict.fromkeys((22, 25, 82, 47, 49, 90), Fenced),
        **dict.fromkeys((29, 30, 53), Misconfigured),
        **dict.fromkeys((12, 48, 120, 4711), WriterDead),
    },
    END: {
        **dict.fromkeys((47, 49, 90), Fenced),
        **dict.fromkeys((35, 53), Misconfigured),
        **dict.fromkeys((48, 120, 4711), WriterDead),
    },
}


@BOTH
@pytest.mark.parametrize("key", FINAL, ids=["produce", "positions", "end"])
async def test_a_final_answer_kills_the_epoch_and_nothing_is_committed(
    site: Site, key: int, version: int | None
) -> None:
    for code, error in FINAL[key].items():
        raised = await dead_under(site, key, answers(code), version)
        assert type(raised) is error, code
        assert key != PRODUCE or raised.where in (str(site.to(0)), str(site.to(1)))
    once = [b"1", b"3"]
    assert await site.visible() == {0: once * len(FINAL[key]), 1: once * len(FINAL[key])}
    assert await site.position() == 3


async def test_a_preparation_that_is_refused_is_final(site: Site) -> None:
    for key in PREPARING:
        for code, error in {90: Fenced, 49: Fenced, 48: WriterDead, 53: Misconfigured}.items():
            assert type(await dead_under(site, key, answers(code), 0)) is error


@BOTH
@pytest.mark.parametrize("key", [*PREPARING, POSITIONS])
async def test_what_may_be_repeated_is_repeated(site: Site, key: int, version: int | None) -> None:
    lost = (lost_request, lost_answer, answers(15), answers(16))
    busy = tuple(answers(code) for code in (3, 7, 14, 51))
    for rule in (*lost, *busy):
        writer = site.writer(version=version)
        await writer.open()
        if rule in busy:  # a coordinator that was lost is outlived by an id only before its first end
            await writer.commit(site.commit(writer, {0: [b"x"]}, 1))
        site.wire.rules[key] = first(2, rule)
        await writer.commit(site.commit(writer, {0: [b"y"]}, 2))
    assert await site.visible() == {0: [b"y"] * 4 + [b"x", b"y"] * 4}


@pytest.mark.parametrize(
    ("key", "version"), [(POSITIONS, None), *((key, 0) for key in (*PREPARING, POSITIONS))]
)
async def test_an_id_does_not_outlive_its_coordinators(site: Site, key: int, version: int | None) -> None:
    for rule in (lost_request, lost_answer, answers(15), answers(16)):
        assert type(await dead_under(site, key, first(1, rule), version)) is WriterDead
    assert await site.visible() == {0: [b"1", b"3"] * 4, 1: [b"1", b"3"] * 4}


async def test_a_group_in_the_middle_of_a_round_is_asked_again_but_not_for_ever(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await commit_under(site, POSITIONS, first(3, answers(27)))
    await check_all_three(site)
    monkeypatch.setattr(coordinator_module, "REBALANCE_TRIES_MAX", 3)
    assert isinstance(await dead_under(site, POSITIONS, answers(27)), Fenced)


@pytest.mark.parametrize("rule", [lost_request, lost_answer], ids=["request", "answer"])
async def test_version_2_asks_for_a_lost_end_again_and_the_answer_is_decisive(site: Site, rule: Rule) -> None:
    await site.require_version_2()
    await commit_under(site, END, first(1, rule))
    await check_all_three(site)


async def test_version_2_repeats_an_end_that_a_busy_coordinator_refused(site: Site) -> None:
    await site.require_version_2()
    writer = site.writer()
    await writer.open()
    for code in (14, 15, 16, 51):
        site.wire.rules[END] = first(3, answers(code))
        await writer.commit(site.commit(writer, {0: [b"%d" % code]}, code))
        assert writer.needs_renewal == (code in (15, 16))
        await renew(writer)
    assert await site.visible() == {0: [b"14", b"15", b"16", b"51"]}
    assert await site.position() == 51


@pytest.mark.parametrize("before", [lost_answer, answers_after(16)], ids=["lost", "moved"])
@pytest.mark.parametrize("code", [48, 49, 90])
async def test_an_end_that_is_refused_after_one_without_answer_is_doubt(
    site: Site, before: Rule, code: int
) -> None:
    replies = iter((before, answers(code)))

    async def in_turn(call: Call[Any], forward: Forward) -> Any:
        return await next(replies)(call, forward)

    assert type(await dead_under(site, END, in_turn)) is WriterDead
    # It had landed: this is why nobody may call it fenced.
    assert await site.visible() == {0: [b"1", b"2", b"3"], 1: [b"1", b"2", b"3"]}


@pytest.mark.parametrize(
    ("rule", "landed"), [(lost_request, []), (lost_answer, [b"2"])], ids=["request", "answer"]
)
async def test_version_1_never_asks_for_a_lost_end_again(site: Site, rule: Rule, landed: list[bytes]) -> None:
    assert type(await dead_under(site, END, rule, 0)) is WriterDead
    assert await site.visible() == {0: [b"1", *landed, b"3"], 1: [b"1", *landed, b"3"]}


async def test_fenced_says_more_than_what_became_of_the_batches(site: Site) -> None:
    async def after_positions(call: Call[Any], forward: Forward) -> Any:
        await asyncio.sleep(0.05)
        return await answers(45)(call, forward)

    writer = site.writer()
    await writer.open()
    site.wire.rules = {PRODUCE: after_positions, POSITIONS: answers(22)}
    with pytest.raises(Fenced):
        await writer.commit(site.commit(writer, {0: [b"a"]}, 1))


@pytest.mark.parametrize("rule", [lost_request, lost_answer, answers(6), answers_after(20)])
async def test_at_least_once_keeps_one_copy_of_what_it_sends_again(site: Site, rule: Rule) -> None:
    writer = site.writer(guarantee=Guarantee.AT_LEAST_ONCE)
    await writer.open()
    for number in range(4):
        site.wire.rules = {PRODUCE: first(2, rule), calls.OFFSET_COMMIT_KEY: first(2, lost_answer)}
        await writer.commit(site.commit(writer, {0: [b"%d" % number, b"."]}, number))
    assert await site.visible(fence=None) == {0: [b"0", b".", b"1", b".", b"2", b".", b"3", b"."]}
    assert await site.position() == 3
