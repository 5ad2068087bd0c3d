"""`streamkit topics`: the topics that files declare, and the ones that the cluster has."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from streamkit.cli.connect import connected
from streamkit.cli.load import load_pipeline
from streamkit.cli.options import DEFAULT_CLUSTER, Cluster, Output
from streamkit.cli.output import Cell, facts, grid, say, say_finding, say_parts, say_trace, show
from streamkit.cli.topics_view import applied_lines, failure, plan_lines
from streamkit.model.topic_file import DeclaredTopic, read_topic_files
from streamkit.operate.topics_list import describe_topic, list_all
from streamkit.operate.topics_plan import TopicsPlan, apply_plan, plan_topics, refusal
from streamkit.operate.topics_readers import Readers, readers_of

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
    """Show what `apply` would do: topics to create, entries to set, partitions to add, and what is refused.

    Exits with 1 if anything is refused: `apply` would do nothing then.
    """
    declared, readers = read_topic_files(folder), _readers(pipelines)
    async with connected(cluster.load()) as log:
        planned = await plan_topics(declared, log.admin(), readers)
    show(planned, output, *plan_lines(planned))
    _say_unchecked(planned)
    if planned.refused:
        return 1
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
            help="Add partitions also where that stops a pipeline, or may; and very many of them.",
        ),
    ] = False,
    cluster: Cluster = DEFAULT_CLUSTER,
    output: Output = "table",
) -> int:
    """Make the cluster's topics as the files declare them. Nothing is ever deleted.

    If any difference is refused, nothing at all is changed. More partitions are refused where a pipeline that is named
    would not start again, or where one reads the topic that runs now and is not named; `--force` adds them. If a change fails, those before it stay: they are listed, and
    the same command does the rest.
    """
    declared, readers = read_topic_files(folder), _readers(pipelines)
    async with connected(cluster.load()) as log:
        planned = await plan_topics(declared, log.admin(), readers, force=force)
        show(planned, output, *plan_lines(planned))
        _say_unchecked(planned)
        if planned.refused:
            raise refusal(planned)
        if execute:
            applied = await apply_plan(planned, log.admin(), say_trace)
            say_parts(*applied_lines(applied))
            if applied.error is not None:
                say_finding(failure(applied, applied.error))
                return 1
    _say_end(planned, execute=execute)
    return 0


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
    """Show one topic: its partitions and offsets, its configuration, and the words of its file.

    `records` is `end` - `start`: markers of transactions, and records that compaction has removed, are counted too.
    """
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
    show(found, output, words, "", grid(("partition", "start", "end", "records"), rows))


def _readers(targets: Sequence[str]) -> Readers:
    return readers_of([load_pipeline(target).plan() for target in targets])


def _declared_or_none(folder: Path) -> list[DeclaredTopic]:
    """Looking at a cluster needs no files, unless they were asked for."""
    return [] if folder == DEFAULT_FOLDER and not folder.is_dir() else read_topic_files(folder)


def _say_unchecked(planned: TopicsPlan) -> None:
    if planned.unchecked:
        names = ", ".join(planned.unchecked)
        say(f"not checked, --execute does it: whether Kafka knows the config keys {names}", style="dim")


def _say_end(planned: TopicsPlan, *, execute: bool) -> None:
    if planned.is_empty:
        return
    if execute:
        say("done: the topics are as the files declare them", style="green")
    else:
        say("nothing was changed; add --execute to act", style="dim")
