import asyncio

import pytest
from structlog.testing import capture_logs

from streamkit.errors import Misconfigured, Retry
from streamkit.model.topic_shape import TopicSpec
from streamkit.runtime import prepare as prepare_module
from streamkit.runtime.prepare import inspect, prepare
from streamkit.testing.memory import MemoryBroker, MemoryLog
from tests.runtime.pages import counting


@pytest.fixture
def admin():
    return MemoryLog(MemoryBroker()).admin()


async def test_a_missing_topic_is_named_with_the_cure(admin, monkeypatch):
    monkeypatch.setattr(prepare_module, "HEARD_S", 0.01)
    await admin.create([TopicSpec("views", 2)])
    with pytest.raises(Misconfigured) as refused:
        await prepare(counting().plan(), admin)
    assert refused.value.problem == 'topic "counts" does not exist'
    assert "topics apply" in refused.value.hint


async def test_all_missing_topics_are_named_at_once(admin, monkeypatch):
    monkeypatch.setattr(prepare_module, "HEARD_S", 0.01)
    with pytest.raises(Misconfigured) as refused:
        await prepare(counting().plan(), admin)
    assert refused.value.problem == 'topic "views" does not exist'
    assert refused.value.detail == 'also: topic "counts" does not exist'


async def test_a_topic_that_was_created_a_moment_ago_is_waited_for(admin):
    await admin.create([TopicSpec("views", 2)])
    preparing = asyncio.ensure_future(prepare(counting().plan(), admin))
    await asyncio.sleep(0.01)
    assert not preparing.done()
    await admin.create([TopicSpec("counts", 2)])
    assert (await preparing).partition_counts["counts"] == 2


async def test_what_another_worker_created_meanwhile_must_fit_too(admin, monkeypatch):
    await admin.create([TopicSpec("views", 3), TopicSpec("counts", 2)])
    plan = counting().plan()
    (shuffle,) = plan.shuffles()
    create = admin.create

    async def somebody_is_quicker(topics):
        await create([TopicSpec(shuffle, 7)])
        await create(topics)

    monkeypatch.setattr(admin, "create", somebody_is_quicker)
    with pytest.raises(Misconfigured, match="has 7 partitions, the pipeline needs 3"):
        await prepare(plan, admin)


async def test_internal_topics_are_created_once(admin):
    await admin.create([TopicSpec("views", 3), TopicSpec("counts", 2)])
    plan = counting().plan()
    looked = await inspect(plan, admin)
    assert len(looked.missing) == 4
    assert await admin.partitions(plan.shuffles()) == {}
    prepared = await prepare(plan, admin)
    assert set((await admin.partitions(plan.shuffles())).values()) == {3}
    assert prepared.partition_counts["counts"] == 2
    assert (await inspect(plan, admin)).missing == ()
    (shuffle,) = plan.shuffles()
    described = await admin.describe([shuffle, *plan.changelogs()])
    assert described[shuffle].config["message.timestamp.type"] == "LogAppendTime"
    assert all(described[changelog].config["cleanup.policy"] == "compact" for changelog in plan.changelogs())


async def test_dead_letters_are_kept_by_the_brokers_clock_also_in_a_topic_that_went_by_the_records(admin):
    await admin.create([TopicSpec("views", 3), TopicSpec("counts", 2)])
    plan = counting().plan()
    older = {"cleanup.policy": "delete", "retention.ms": "1000"}
    await admin.create([TopicSpec(plan.dead_letter_topic, 3, None, older)])
    with capture_logs() as logs:
        prepared = await prepare(plan, admin)
        await prepare(plan, admin)
    config = (await admin.describe([plan.dead_letter_topic]))[plan.dead_letter_topic].config
    assert config == {**older, "message.timestamp.type": "LogAppendTime"}
    assert [each["topic"] for each in logs] == [plan.dead_letter_topic]  # said, and once
    assert prepared.limits[plan.dead_letter_topic].after_ms_max is None


async def test_a_new_dead_letter_topic_goes_by_the_brokers_clock(admin):
    await admin.create([TopicSpec("views", 3), TopicSpec("counts", 2)])
    plan = counting().plan()
    await prepare(plan, admin)
    config = (await admin.describe([plan.dead_letter_topic]))[plan.dead_letter_topic].config
    assert config["message.timestamp.type"] == "LogAppendTime"


async def test_a_source_that_grew_takes_no_key_from_its_state(admin):
    await admin.create([TopicSpec("views", 3), TopicSpec("counts", 2)])
    plan = counting().plan()
    await prepare(plan, admin)
    await admin.add_partitions("views", 5)
    told = [each.detail for each in (await inspect(plan, admin)).findings]
    assert "3 partitions, will have 5: a source has grown" in told
    prepared = await prepare(plan, admin)
    assert {stage.name: stage.partitions for stage in prepared.plan.stages} == {"views": 5, "page_of": 3}
    counts = await admin.partitions([*plan.shuffles(), *plan.changelogs()])
    assert counts == {
        "pages.page_of.shuffle.1": 3,
        "pages.views.changelog.1": 5,
        "pages.page_of.changelog.1": 3,
    }


async def grown(admin):
    """A pipeline whose source has more partitions than when it was prepared."""
    await admin.create([TopicSpec("views", 3), TopicSpec("counts", 2)])
    plan = counting().plan()
    await prepare(plan, admin)
    await admin.add_partitions("views", 5)
    return plan


async def test_a_changelog_that_may_not_grow_is_for_a_person_who_is_told_what_to_do(admin, monkeypatch):
    plan = await grown(admin)

    async def refuse(topic, partitions):
        raise Misconfigured(
            "the broker refused the request", where=topic, detail="TOPIC_AUTHORIZATION_FAILED"
        )

    monkeypatch.setattr(prepare_module, "HEARD_S", 0.01)
    monkeypatch.setattr(admin, "add_partitions", refuse)
    with pytest.raises(Misconfigured) as refused:
        await prepare(plan, admin)
    assert refused.value.problem == 'changelog "pages.views.changelog.1" did not get more partitions'
    assert "TOPIC_AUTHORIZATION_FAILED" in refused.value.detail
    assert "allow the workers' user to alter it, or give it\n5 partitions by hand" in refused.value.hint


async def test_partitions_that_brokers_hear_of_later_are_waited_for(admin, monkeypatch):
    plan = await grown(admin)
    add = admin.add_partitions

    async def later(topic, partitions):
        asyncio.get_running_loop().call_later(
            0.3, lambda: tasks.append(asyncio.ensure_future(add(topic, partitions)))
        )

    tasks = []
    monkeypatch.setattr(admin, "add_partitions", later)
    assert (await prepare(plan, admin)).partition_counts["pages.views.changelog.1"] == 5


async def test_another_worker_that_was_quicker_while_the_source_grew_once_more_is_no_refusal(
    admin, monkeypatch
):
    plan = await grown(admin)
    add = admin.add_partitions

    async def somebody_is_quicker(topic, partitions):
        await add(topic, partitions)
        await add("views", 7)
        raise Misconfigured("a topic cannot have this number of partitions", where=topic)

    monkeypatch.setattr(prepare_module, "HEARD_S", 0.01)
    monkeypatch.setattr(admin, "add_partitions", somebody_is_quicker)
    with pytest.raises(Retry):
        await prepare(plan, admin)
    monkeypatch.undo()
    assert (await prepare(plan, admin)).partition_counts["pages.views.changelog.1"] == 7
