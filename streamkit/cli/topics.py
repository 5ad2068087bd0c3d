"""`streamkit topics`: the topics that files declare, and the ones that the cluster has."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from streamkit.cli.connect import connected
from streamkit.cli.load import load_pipeline
from streamkit.cli.options import DEFAULT_CLUSTER, Cluster, Output
from streamkit.cli.output import Cell, facts, grid, say, say_parts, show
from streamkit.cli.topics_plan import TopicsPlan, apply_plan, plan_topics
from streamkit.cli.topics_readers import Readers
from streamkit.cli.topics_view import applied_lines, failure, plan_lines, refusal
from streamkit.errors import Misconfigured
from streamkit.kafka.ports import Admin
from streamkit.model.ids import TopicPartition
from streamkit.model.topic_file import DeclaredTopic, read_topic_files

app = App(
    name="topics",
    help="Declare topics in files, one `topics/<name>.toml` each, and keep the cluster as they say.",
    sort_key=5,
    help_epilogue="""
A topic file, `topics/page-views.toml`; only `partitions` must be there:

    partitions = 4
    owner = "team-web"
    description = "one record for every page that a person opened"

    [config]
    "retention.ms" = 604800000
""",
)

Folder = Annotated[Path, Parameter(name="--dir", help="The folder with the topic files.")]
Pipelines = Annotated[
    tuple[str, ...],
    Parameter(
        name="--pipeline",
        negative=(),
        metavar="MODULE:NAME",
        show_default=False,
        help="A pipeline (`module:name`) whose inputs are looked at when partitions are added; may be repeated.",
    ),
]
DEFAULT_FOLDER = Path("topics")


class TopicRow(msgspec.Struct, frozen=True, kw_only=True):
    """A topic in the list: as it is, and the file that declares it."""

    topic: str
    partitions: int | None
    replication: int | None
    declared_in: str | None
    owner: str


class TopicList(msgspec.Struct, frozen=True):
    """All topics, of the cluster and of the files."""

    topics: list[TopicRow]


class PartitionRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one partition holds."""

    partition: int
    start_offset: int
    end_offset: int


class TopicDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A topic of the cluster, and what its file says about it."""

    topic: str
    replication: int
    config: dict[str, str]
    partitions: list[PartitionRow]
    declared_in: str | None = None
    owner: str = ""
    description: str = ""
    key: str = ""
    value: str = ""


@app.command(
    name="plan",
    help_epilogue="""
Examples:

    streamkit topics plan
    streamkit topics plan --exit-code --output json --pipeline services.page_views.pipeline:page_views
""",
)
async def plan_command(
    *,
    folder: Folder = DEFAULT_FOLDER,
    pipelines: Pipelines = (),
    exit_code: Annotated[
        bool,
        Parameter(negative=(), show_default=False, help="Exit with 3 if files and cluster differ: for CI."),
    ] = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    output: Output = "table",
) -> int:
    """Show what `apply` would do: topics to create, entries to set, partitions to add, and what is refused."""
    declared, readers = read_topic_files(folder), readers_of(pipelines)
    async with connected(cluster.load()) as log:
        planned = await plan_topics(declared, log.admin(), readers)
    show(planned, output, *plan_lines(planned))
    return 3 if exit_code and not planned.is_empty else 0


@app.command(help_epilogue="")
async def apply(
    *,
    folder: Folder = DEFAULT_FOLDER,
    pipelines: Pipelines = (),
    execute: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Act; without it only the plan is shown.")
    ] = False,
    force: Annotated[
        bool,
        Parameter(
            negative=(),
            show_default=False,
            help="Add partitions also where that stops a pipeline, or may; and more of them than anybody wants.",
        ),
    ] = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    output: Output = "table",
) -> None:
    """Make the cluster's topics as the files declare them. Nothing is ever deleted.

    If any difference is refused, nothing at all is changed. More partitions are refused where a pipeline that is named
    would not start again, or where one reads the topic that runs now and is not named; `--force` adds them. If a change fails, those before it stay: they are told, and
    the same command does the rest.
    """
    declared, readers = read_topic_files(folder), readers_of(pipelines)
    async with connected(cluster.load()) as log:
        planned = await plan_topics(declared, log.admin(), readers, force=force)
        show(planned, output, *plan_lines(planned))
        if planned.refused:
            raise refusal(planned)
        if execute:
            applied = await apply_plan(planned, log.admin())
            say_parts(*applied_lines(applied))
            if applied.error is not None:
                raise failure(applied, applied.error)
    _say_end(planned, execute=execute)


@app.command(name="list", help_epilogue="")
async def list_topics(
    *, folder: Folder = DEFAULT_FOLDER, cluster: Cluster = DEFAULT_CLUSTER, output: Output = "table"
) -> None:
    """List the topics of the cluster, and the declared ones that it does not have yet."""
    declared = _declared_or_none(folder)
    async with connected(cluster.load()) as log:
        listed = await list_all(declared, log.admin())
    rows: list[list[Cell]] = [
        [each.topic, each.partitions, each.replication, each.declared_in, each.owner]
        for each in listed.topics
    ]
    show(listed, output, grid(("topic", "partitions", "replicas", "declared in", "owner"), rows))
    if not rows:
        say("no topics; declare some and run `streamkit topics apply --execute`", style="dim")


@app.command(help_epilogue="")
async def describe(
    topic: Annotated[str, Parameter(name="TOPIC", help="The topic's name.")],
    /,
    *,
    folder: Folder = DEFAULT_FOLDER,
    cluster: Cluster = DEFAULT_CLUSTER,
    output: Output = "table",
) -> None:
    """Show one topic: its partitions and offsets, its configuration, and the words of its file."""
    declared = {each.name: each for each in _declared_or_none(folder)}
    async with connected(cluster.load()) as log:
        found = await describe_topic(topic, declared.get(topic), log.admin())
    words = facts(
        ("topic", found.topic),
        ("description", found.description),
        ("key", found.key),
        ("value", found.value),
        ("owner", found.owner),
        ("declared in", found.declared_in or "no file"),
        ("replicas", found.replication),
        *((f"config {name}", value) for name, value in sorted(found.config.items())),
    )
    rows: list[list[Cell]] = [
        [each.partition, each.start_offset, each.end_offset, each.end_offset - each.start_offset]
        for each in found.partitions
    ]
    show(found, output, words, "", grid(("partition", "start", "end", "offsets"), rows))


async def list_all(declared: Sequence[DeclaredTopic], admin: Admin) -> TopicList:
    """Every topic that exists or is declared, by name."""
    found = await admin.describe(await admin.list_topics())
    files = {each.name: each for each in declared}
    rows = []
    for name in sorted({*found, *files}):
        info, file = found.get(name), files.get(name)
        rows.append(
            TopicRow(
                topic=name,
                partitions=info.partitions if info else None,
                replication=info.replication if info else None,
                declared_in=file.path if file else None,
                owner=file.file.owner if file else "",
            )
        )
    return TopicList(rows)


async def describe_topic(topic: str, declared: DeclaredTopic | None, admin: Admin) -> TopicDescription:
    """One topic as cluster and file know it.

    Raises:
        Misconfigured: the cluster has no such topic.
    """
    info = (await admin.describe([topic])).get(topic)
    if info is None:
        where = f"it is declared in {declared.path}: " if declared else ""
        raise Misconfigured(
            f'topic "{topic}" does not exist',
            hint=f"{where}`streamkit topics {'apply --execute` creates it' if declared else 'list` shows what there is'}",
        )
    partitions = [TopicPartition(topic, number) for number in range(info.partitions)]
    starts = await admin.start_offsets(partitions)
    ends = await admin.end_offsets(partitions, committed=False)
    words = declared.file if declared else None
    return TopicDescription(
        topic=topic,
        replication=info.replication,
        config=dict(info.config),
        partitions=[
            PartitionRow(partition=each.partition, start_offset=starts[each], end_offset=ends[each])
            for each in partitions
        ],
        declared_in=declared.path if declared else None,
        owner=words.owner if words else "",
        description=words.description if words else "",
        key=words.key if words else "",
        value=words.value if words else "",
    )


def readers_of(targets: Sequence[str]) -> Readers:
    """Which stages of these pipelines keep state by the partitions of which topic."""
    bound: dict[str, list[str]] = {}
    plans = [load_pipeline(target).plan() for target in targets]
    for plan in plans:
        for stage in plan.stages:
            for each in stage.inputs if stage.stores else ():
                bound.setdefault(each.topic, []).append(f'stage "{stage.name}" of pipeline "{plan.name}"')
    return Readers(tuple(plan.name for plan in plans), bound)


def _declared_or_none(folder: Path) -> list[DeclaredTopic]:
    """Looking at a cluster needs no files, unless they were asked for."""
    return [] if folder == DEFAULT_FOLDER and not folder.is_dir() else read_topic_files(folder)


def _say_end(planned: TopicsPlan, *, execute: bool) -> None:
    if planned.is_empty:
        return
    if execute:
        say("done: the topics are as the files declare them", style="green")
    else:
        say("nothing was changed; add --execute to act", style="dim")
