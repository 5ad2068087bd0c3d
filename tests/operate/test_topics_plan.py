"""Topic files against a cluster: what is planned, what is done, what is refused."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

import streamkit as sk
from streamkit.cli.topics_view import applied_lines, failure, plan_lines
from streamkit.errors import Misconfigured, StreamkitError
from streamkit.kafka.ports import Admin, MemberOptions, StageTasks
from streamkit.model.ids import TopicPartition
from streamkit.model.topic_file import DeclaredTopic, parse_topic, read_topic_files
from streamkit.model.topic_shape import TopicInfo, TopicSpec
from streamkit.operate.topics_list import TopicsTotal, count_all, describe_topic, list_all
from streamkit.operate.topics_plan import TopicsPlan, apply_plan, plan_topics, refusal
from streamkit.operate.topics_readers import Readers
from streamkit.runtime.prepare import inspect
from streamkit.testing.memory import MemoryBroker, MemoryLog


@pytest.fixture
def admin() -> Admin:
    return MemoryLog(MemoryBroker()).admin()


def declare(name: str, content: str) -> DeclaredTopic:
    path = f"topics/{name}.toml"
    return DeclaredTopic(path, parse_topic(content, path))


async def plan(admin: Admin, *topics: DeclaredTopic) -> TopicsPlan:
    return await plan_topics(topics, admin, Readers())


async def test_a_topic_that_is_missing_is_created_as_declared(admin: Admin) -> None:
    topic = declare("a", 'partitions = 3\n[config]\n"retention.ms" = 1000')
    planned = await plan(admin, topic)
    assert [each.topic for each in planned.create] == ["a"]
    await apply_plan(planned, admin)
    found = (await admin.describe(["a"]))["a"]
    assert (found.partitions, found.config) == (3, {"retention.ms": "1000"})
    again = await plan(admin, topic)
    assert again.is_empty
    assert again.unchanged == ["a"]


async def test_a_changed_entry_is_set_and_others_are_left_alone(admin: Admin) -> None:
    await admin.create([TopicSpec("a", 1, None, {"retention.ms": "1", "cleanup.policy": "delete"})])
    planned = await plan(
        admin, declare("a", "partitions = 1\n[config]\nretention.ms = 2\nmax.message.bytes = 9000")
    )
    assert [(each.entry, each.before, each.after) for each in planned.configure] == [
        ("max.message.bytes", None, "9000"),
        ("retention.ms", "1", "2"),
    ]
    await apply_plan(planned, admin)
    config = (await admin.describe(["a"]))["a"].config
    assert config == {"retention.ms": "2", "cleanup.policy": "delete", "max.message.bytes": "9000"}


async def test_partitions_are_added_unless_that_stops_a_pipeline(admin: Admin) -> None:
    await admin.create([TopicSpec("a", 2)])
    topic = declare("a", "partitions = 4")
    readers = Readers(("p",), {"a": ['stage "s" of pipeline "p"']})
    silent = await plan_topics([topic], admin, Readers())
    assert "keys move" in silent.grow[0].warning
    assert "--pipeline names one" in silent.grow[0].warning
    refused = await plan_topics([topic], admin, readers)
    assert refused.grow == []
    assert 'stage "s" of pipeline "p" keeps state by them' in refused.refused[0].problem
    assert "--force" in refused.refused[0].hint
    forced = await plan_topics([topic], admin, readers, force=True)
    assert 'stage "s" of pipeline "p" keeps state by them, and will not' in forced.grow[0].warning
    await apply_plan(forced, admin)
    assert await admin.partitions(["a"]) == {"a": 4}


async def test_a_pipeline_that_was_named_and_goes_on_is_told_to_be_safe(admin: Admin) -> None:
    await admin.create([TopicSpec("a", 2)])
    planned = await plan_topics([declare("a", "partitions = 4")], admin, Readers(("p",), {}))
    assert planned.grow[0].warning == ""
    lines = "\n".join(str(line) for line in plan_lines(planned))
    assert 'is not affected: pipeline "p"' in lines
    assert "warning" not in lines
    assert "--pipeline" not in lines


async def test_partitions_under_a_pipeline_that_runs_and_was_not_named_are_refused() -> None:
    log = MemoryLog(MemoryBroker())
    admin = log.admin()
    await admin.create([TopicSpec("a", 2), TopicSpec("b", 2), TopicSpec("p.s.changelog.1", 2)])
    stages = (StageTasks("s", 2),)
    membership = log.membership(MemberOptions(group="p", writer_id="w", stages=stages, topics=("a",)))
    topics = [declare("a", "partitions = 4"), declare("b", "partitions = 4")]
    stopped = await plan(admin, *topics)
    assert (len(stopped.grow), stopped.refused) == (2, [])
    await membership.join([])
    refused = await plan(admin, *topics)
    assert [each.topic for each in refused.grow] == ["b"]
    assert [each.topic for each in refused.refused] == ["a"]
    assert 'pipeline "p"' in refused.refused[0].problem
    assert "--pipeline" in refused.refused[0].hint
    assert "--force" in refused.refused[0].hint
    named = await plan_topics(topics, admin, Readers(("p",), {}))
    forced = await plan_topics(topics, admin, Readers(), force=True)
    assert len(named.grow) == len(forced.grow) == 2
    await membership.leave()


async def test_more_partitions_than_anybody_wants_are_refused_unless_forced(admin: Admin) -> None:
    await admin.create([TopicSpec("a", 2)])
    topics = [declare("a", "partitions = 10001"), declare("b", "partitions = 1000000")]
    refused = await plan(admin, *topics, declare("c", "partitions = 10000"))
    assert [each.topic for each in refused.refused] == ["a", "b"]
    assert [each.topic for each in refused.create] == ["c"]
    assert "would get 1000000 partitions, more than 10000" in refused.refused[1].problem
    forced = await plan_topics(topics, admin, Readers(), force=True)
    assert (forced.refused, len(forced.grow), len(forced.create)) == ([], 1, 1)


async def test_fewer_partitions_and_other_replicas_are_refused(admin: Admin) -> None:
    await admin.create([TopicSpec("a", 4)])
    planned = await plan(admin, declare("a", "partitions = 2\nreplication = 3"))
    assert len(planned.refused) == 2
    assert not planned.is_empty
    error = refusal(planned)
    assert 'topic "a" has 4 partitions, its file says 2' in error.problem
    assert error.where == "topics/a.toml"
    lines = "\n".join(str(line) for line in plan_lines(planned))
    assert "partitions = 4" in lines


async def test_the_list_holds_what_exists_and_what_is_declared(admin: Admin) -> None:
    await admin.create([TopicSpec("there", 2)])
    listed = await list_all([declare("wanted", "partitions = 1\nowner = 'me'")], admin)
    assert [(row.topic, row.partitions, row.declared_in, row.owner) for row in listed.topics] == [
        ("there", 2, None, ""),
        ("wanted", None, "topics/wanted.toml", "me"),
    ]


async def test_all_topics_are_counted_by_what_they_still_hold() -> None:
    broker = MemoryBroker()
    admin = MemoryLog(broker).admin()
    assert await count_all(admin) == TopicsTotal(topics=0, offsets=0)
    await admin.create([TopicSpec("a", 2), TopicSpec("b", 1)])
    stored = broker.topics.partition(TopicPartition("a", 1))
    stored.start_offset, stored.end_offset = 2, 5
    assert await count_all(admin) == TopicsTotal(topics=2, offsets=3)


async def test_a_topic_is_described_by_cluster_and_file(admin: Admin) -> None:
    await admin.create([TopicSpec("a", 2)])
    found = await describe_topic("a", declare("a", "partitions = 2\nvalue = 'JSON'"), admin)
    assert (found.value, len(found.partitions), found.partitions[0].end_offset) == ("JSON", 2, 0)
    with pytest.raises(Misconfigured) as error:
        await describe_topic("b", declare("b", "partitions = 2"), admin)
    assert "apply --execute" in error.value.hint


def test_a_file_is_named_by_itself_unless_it_says_otherwise(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text("partitions = 1")
    (tmp_path / "a.toml").write_text("partitions = 1\nname = 'z.other'")
    assert [topic.name for topic in read_topic_files(tmp_path)] == ["b", "z.other"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("partitons = 3", "partitons"),
        ("partitions = 'three'", 'partitions is "three"; it must be a whole number'),
        ("owner = 'me'", "does not say partitions"),
        ("partitions = 0", "partitions is 0; it must be a whole number between 1 and"),
        ("partitions = true", "partitions is true; it must be a whole number"),
        ("partitions = 99999999999", "between 1 and 2147483647"),
        (
            "partitions = 1\nreplication = 0",
            "replication is 0; it must be a whole number between 1 and 32767",
        ),
        ("partitions = 1\nowner = 3", "owner is 3; it must be text"),
        ("broker = 'a'", "broker is not a key of a topic file"),
        ("partitions = 1\nname = 'a b'", "cannot be the name"),
        ("partitions =", "TOML"),
        ("partitions = 1\nconfig = 3", "config is 3; it must be a table"),
    ],
)
def test_a_file_that_makes_no_sense_is_told_with_its_path(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "topic.toml"
    file.write_text(content)
    with pytest.raises(Misconfigured) as error:
        read_topic_files(tmp_path)
    assert str(file) in error.value.where
    assert words in error.value.render()


@pytest.mark.parametrize(
    ("key", "meant"), [("partition", "partitions"), ("replicas", "replication"), ("configs", "config")]
)
def test_a_key_that_is_none_is_told_with_the_closest(key: str, meant: str) -> None:
    with pytest.raises(Misconfigured) as error:
        parse_topic(f"partitions = 1\n{key} = 3", "topics/a.toml")
    assert error.value.problem == f"{key} is not a key of a topic file"
    assert error.value.hint == f"did you mean {meant}?"


def test_an_ending_in_capitals_is_told_and_hidden_files_are_passed_over(tmp_path: Path) -> None:
    for name in (".toml", ".a.toml", "notes.txt"):
        (tmp_path / name).write_text("partitions = 1")
    assert read_topic_files(tmp_path) == []
    (tmp_path / "foo.TOML").write_text("partitions = 1")
    with pytest.raises(Misconfigured) as error:
        read_topic_files(tmp_path)
    assert error.value.where == str(tmp_path / "foo.TOML")
    assert 'rename it to "foo.toml"' in error.value.hint


def test_one_topic_cannot_be_declared_twice(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("partitions = 1")
    (tmp_path / "b.toml").write_text("partitions = 1\nname = 'a'")
    with pytest.raises(Misconfigured, match="declared twice"):
        read_topic_files(tmp_path)


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="does not exist"):
        read_topic_files(tmp_path / "nowhere")


def test_entries_may_be_quoted_dotted_numbers_or_truths() -> None:
    text = 'partitions = 1\n[config]\n"a.b" = 1\nc.d = true\ne.f.g = "x"'
    assert parse_topic(text, "t").config == {"a.b": "1", "c.d": "true", "e.f.g": "x"}


def test_the_topics_of_this_repository_are_declared() -> None:
    topics = {each.name: each.file for each in read_topic_files(Path(__file__).parents[2] / "topics")}
    assert topics["page-views"].partitions == topics["page-counts"].partitions == 4
    assert topics["page-counts"].config["cleanup.policy"] == "compact"
    assert all(file.owner and file.description for file in topics.values())


async def test_what_was_done_before_a_failure_is_told_and_the_same_plan_does_the_rest(admin: Admin) -> None:
    topics = [declare(name, "partitions = 1") for name in ("a", "b", "c")]
    create = admin.create

    async def refuse_b(specs: Sequence[TopicSpec]) -> None:
        if specs[0].name == "b":
            raise Misconfigured("the broker said no", hint="give our user the ACL CREATE")
        await create(specs)

    admin.create = refuse_b  # type: ignore[method-assign]
    applied = await apply_plan(await plan(admin, *topics), admin)
    assert (applied.done, applied.failed, applied.left) == (["create a"], "create b", ["create c"])
    assert [str(line) for line in applied_lines(applied)] == [
        "✓ create a",
        "✗ create b",
        "- create c  not tried",
    ]
    assert applied.error is not None
    told = failure(applied, applied.error)
    assert told.what == "the broker said no"
    assert "1 change was made before it, 1 not tried" in told.detail
    assert "run the same command again" in told.hint

    admin.create = create  # type: ignore[method-assign]
    again = await apply_plan(await plan(admin, *topics), admin)
    assert (again.done, again.error) == (["create b", "create c"], None)


class Talkative:
    """A broker that lists the keys of a topic's configuration, as Kafka does; the in-memory one has a few."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def __getattr__(self, name: str) -> Any:
        return getattr(self._admin, name)

    async def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        listed = {f"key.{number}": "1" for number in range(30)} | {"retention.ms": "1"}
        found = await self._admin.describe(topics)
        return {name: msgspec.structs.replace(each, effective=listed) for name, each in found.items()}


async def test_a_config_key_that_kafka_does_not_know_is_refused_by_the_plan(admin: Admin) -> None:
    topic = declare("a", 'partitions = 1\n[config]\n"retenton.ms" = 1')
    unknown = await plan(Talkative(admin), topic)
    assert (unknown.refused, unknown.unchecked) == ([], ["retenton.ms"])  # there is no topic to compare with
    await admin.create([TopicSpec("other", 1)])
    (refused,) = (await plan(Talkative(admin), topic)).refused
    assert refused.problem == 'has the config key "retenton.ms", which Kafka does not know'
    assert refused.hint == "did you mean retention.ms?"
    assert (await plan(Talkative(admin), declare("a", "partitions = 1"))).unchecked == []


def test_topic_files_of_other_tools_are_told(tmp_path: Path) -> None:
    (tmp_path / "clicks.yaml").write_text("partitions: 1")
    with capture_logs() as logs:
        assert read_topic_files(tmp_path) == []
    assert [(each["file"], each["hint"]) for each in logs] == [
        (str(tmp_path / "clicks.yaml"), "rename it to clicks.toml")
    ]


async def test_a_topic_that_is_missing_is_compared_with_those_that_are_there(admin: Admin) -> None:
    await admin.create([TopicSpec("checked", 1)])
    with pytest.raises(Misconfigured) as error:
        await describe_topic("cheked", None, admin)
    assert error.value.hint.startswith('did you mean "checked"? or ')
    pipeline = sk.pipeline("p")
    pipeline.read(sk.topic("cheked", str)).write(sk.topic("zzz", str))
    found = {each.what: each.hint for each in (await inspect(pipeline.plan(), admin)).findings}
    assert found['topic "cheked" does not exist'].startswith('did you mean "checked"? or declare it')
    assert found['topic "zzz" does not exist'].startswith("declare it")


async def test_what_failed_is_handed_out_for_whoever_shows_tracebacks(admin: Admin) -> None:
    told: list[StreamkitError] = []
    planned = await plan(admin, declare("a", "partitions = 1"))
    broken = Talkative(admin)

    async def create(_: object) -> None:
        raise Misconfigured("no")

    broken.create = create
    applied = await apply_plan(planned, broken, told.append)
    assert [each.problem for each in told] == ["no"]
    assert applied.failed == "create a"
