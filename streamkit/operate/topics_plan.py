"""What would have to change so that the cluster's topics are as the files declare them, and changing it."""

import difflib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial

import msgspec

from streamkit.errors import Misconfigured, StreamkitError
from streamkit.kafka.ports import Admin
from streamkit.model.finding import Finding, finding_of
from streamkit.model.topic_file import DeclaredTopic
from streamkit.model.topic_shape import TopicInfo, TopicSpec, so_many
from streamkit.operate.topics_readers import Readers, running_readers


class Creation(msgspec.Struct, frozen=True):
    """A topic that is declared and not there."""

    topic: str
    partitions: int
    replication: int | None
    config: dict[str, str]


class ConfigChange(msgspec.Struct, frozen=True):
    """A configuration entry that has another value; `before` is None if the broker's default is in force."""

    topic: str
    entry: str
    before: str | None
    after: str


class Growth(msgspec.Struct, frozen=True):
    """A topic that gets more partitions, and what this means for keys. `note` says of whom it is known that they go on."""

    topic: str
    before: int
    after: int
    warning: str
    note: str = ""


class RefusedChange(msgspec.Struct, frozen=True):
    """A difference that is not bridged from here."""

    topic: str
    path: str
    problem: str
    hint: str


class TopicsPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All differences between files and cluster. `unchanged` names the topics that have none."""

    create: list[Creation]
    configure: list[ConfigChange]
    grow: list[Growth]
    refused: list[RefusedChange]
    unchanged: list[str]
    # Keys of configurations of which nobody could say whether Kafka knows them: the cluster has no topic to compare with.
    unchecked: list[str] = []

    @property
    def is_empty(self) -> bool:
        """Whether cluster and files agree."""
        return not (self.create or self.configure or self.grow or self.refused)


class Applied(msgspec.Struct, frozen=True):
    """What became of a plan, change by change in its order, up to the one that failed."""

    done: list[str]
    failed: str = ""
    error: Finding | None = None
    left: list[str] = []


# More than a whole broker should hold: a typing error, not a wish.
PARTITIONS_MAX = 10_000
# Kafka has about thirty keys for a topic. Whoever lists fewer does not list all.
LISTED_MIN = 20


async def plan_topics(
    declared: Sequence[DeclaredTopic], admin: Admin, readers: Readers, *, force: bool = False
) -> TopicsPlan:
    """Compare the declared topics with the cluster; changes nothing.

    More partitions under a pipeline that keeps state by them are refused, unless forced; so are they under one that is
    running and was not named, for it may, and more of them than anybody wants.
    """
    existing = await admin.describe([topic.name for topic in declared])
    growing = [
        topic.name
        for topic in declared
        if (found := existing.get(topic.name)) and found.partitions < topic.file.partitions
    ]
    known = await _known_entries(declared, existing, admin)
    running = {} if force else await running_readers(growing, admin, known=readers.pipelines)
    plan = TopicsPlan(create=[], configure=[], grow=[], refused=[], unchanged=[])
    if not known:
        plan.unchecked.extend(sorted({entry for topic in declared for entry in topic.file.config}))
    for topic in declared:
        found = existing.get(topic.name)
        has = 0 if found is None else found.partitions
        if unknown := _unknown_entries(topic, known):
            plan.refused.extend(unknown)
        elif not force and max(has, PARTITIONS_MAX) < topic.file.partitions:
            plan.refused.append(_too_many(topic))
        elif found is None:
            file = topic.file
            plan.create.append(Creation(topic.name, file.partitions, file.replication, dict(file.config)))
        else:
            bound = readers.bound.get(topic.name, ())
            stops = _stops(topic, found, bound, running.get(topic.name, ()))
            _compare(
                topic, found, plan, None if force else stops, _growth(topic, found, readers.pipelines, bound)
            )
    return plan


async def _known_entries(
    declared: Sequence[DeclaredTopic], existing: Mapping[str, TopicInfo], admin: Admin
) -> frozenset[str]:
    """The keys that a topic's configuration can have, as the broker lists them for any topic; empty if it has none."""
    if not any(topic.file.config for topic in declared):
        return frozenset()
    described = existing or await admin.describe((await admin.list_topics())[:1])
    entries = frozenset(entry for each in described.values() for entry in each.effective)
    return entries if len(entries) >= LISTED_MIN else frozenset()


def _unknown_entries(topic: DeclaredTopic, known: Collection[str]) -> list[RefusedChange]:
    if not known:
        return []
    return [
        RefusedChange(
            topic.name,
            topic.path,
            f'has the config key "{entry}", which Kafka does not know',
            f"did you mean {near[0]}?"
            if (near := difflib.get_close_matches(entry, known, n=1))
            else "leave it out, or look it up in Kafka's topic configurations",
        )
        for entry in topic.file.config
        if entry not in known
    ]


def refusal(plan: TopicsPlan) -> Misconfigured:
    """The error for a plan that cannot be carried out; its first difference stands for all."""
    first = plan.refused[0]
    more = len(plan.refused) - 1
    return Misconfigured(
        f'topic "{first.topic}" {first.problem}',
        where=first.path,
        detail=f"{more} more differences are refused" if more else "Nothing was changed.",
        hint=first.hint,
    )


async def apply_plan(
    plan: TopicsPlan, admin: Admin, tell: Callable[[StreamkitError], None] = lambda _: None
) -> Applied:
    """Do what the plan says, except what it refuses: one topic after the other, up to the first that fails.

    `tell` is called with the error that is then returned as a finding.
    """
    steps = _steps(plan, admin)
    for number, (what, act) in enumerate(steps):
        try:
            await act()
        except StreamkitError as error:
            tell(error)
            left = [what for what, _ in steps[number + 1 :]]
            return Applied([what for what, _ in steps[:number]], what, finding_of(error), left)
    return Applied([what for what, _ in steps])


def _steps(plan: TopicsPlan, admin: Admin) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
    """Each change in words, and how it is made."""
    steps: list[tuple[str, Callable[[], Awaitable[None]]]] = []
    for each in plan.create:
        spec = TopicSpec(each.topic, each.partitions, each.replication, each.config)
        steps.append((f"create {each.topic}", partial(admin.create, [spec])))
    for growth in plan.grow:
        grow = partial(admin.add_partitions, growth.topic, growth.after)
        steps.append((f"grow {growth.topic} to {growth.after} partitions", grow))
    entries: dict[str, dict[str, str]] = {}
    for change in plan.configure:
        entries.setdefault(change.topic, {})[change.entry] = change.after
    for topic, config in entries.items():
        steps.append((f"set {', '.join(config)} of {topic}", partial(admin.configure, topic, config)))
    return steps


def _compare(
    topic: DeclaredTopic, found: TopicInfo, plan: TopicsPlan, stops: RefusedChange | None, growth: Growth
) -> None:
    """Add the differences of one topic to the plan; if it gets more partitions, the growth or why there is none."""
    file = topic.file
    refusals = _refusals(topic, found)
    changes = [
        ConfigChange(topic.name, entry, found.config.get(entry), value)
        for entry, value in sorted(file.config.items())
        if found.config.get(entry) != value
    ]
    grows = file.partitions > found.partitions
    if grows and stops is not None:
        refusals.append(stops)
    elif grows:
        plan.grow.append(growth)
    plan.refused.extend(refusals)
    plan.configure.extend(changes)
    if not (refusals or changes or grows):
        plan.unchanged.append(topic.name)


def _refusals(topic: DeclaredTopic, found: TopicInfo) -> list[RefusedChange]:
    file = topic.file
    refusals: list[RefusedChange] = []
    if file.partitions < found.partitions:
        refusals.append(
            RefusedChange(
                topic.name,
                topic.path,
                f"has {so_many(found.partitions)}, its file says {file.partitions}; Kafka cannot take partitions away",
                f"write `partitions = {found.partitions}`, or move to a topic of another name",
            )
        )
    if file.replication is not None and file.replication != found.replication:
        refusals.append(
            RefusedChange(
                topic.name,
                topic.path,
                f"has {found.replication} replicas, its file says {file.replication}; replicas are moved by Kafka's own tools",
                f"use `kafka-reassign-partitions`, or write `replication = {found.replication}`",
            )
        )
    return refusals


def _growth(topic: DeclaredTopic, found: TopicInfo, pipelines: Sequence[str], bound: Sequence[str]) -> Growth:
    warning = note = ""
    if bound:
        warning = (
            f"keys move to other partitions: {', '.join(bound)} keeps state by them, and will not start again"
        )
    elif pipelines:
        note = f"keeps no state by this topic's own keys, and is not affected: {_named(pipelines)}"
    else:
        warning = (
            "keys move to other partitions: a pipeline that keeps state by this topic's own keys will not start again"
            " (--pipeline names one, and is looked at)"
        )
    return Growth(topic.name, found.partitions, topic.file.partitions, warning, note)


def _stops(
    topic: DeclaredTopic, found: TopicInfo, bound: Sequence[str], running: Sequence[str]
) -> RefusedChange | None:
    """Why more partitions are refused: who would not start again for certain, or who might not; None if nobody is known."""
    counts = f"has {so_many(found.partitions)}, its file says {topic.file.partitions}"
    if bound:
        return RefusedChange(
            topic.name,
            topic.path,
            f"{counts}; {', '.join(bound)} keeps state by them, and would not start again",
            "let the pipeline read it through key_by, under a new name; or add --force, and begin it anew with"
            " `streamkit offsets reset <pipeline> --to earliest --drop-state --execute`",
        )
    if running:
        return RefusedChange(
            topic.name,
            topic.path,
            f"{counts}; it is read by what runs now, and would not start again if it keeps state by them:"
            f" {_named(running)}",
            "name it with `--pipeline MODULE:NAME`, and it is looked at; or add --force",
        )
    return None


def _named(pipelines: Sequence[str]) -> str:
    return ", ".join(f'pipeline "{each}"' for each in pipelines)


def _too_many(topic: DeclaredTopic) -> RefusedChange:
    return RefusedChange(
        topic.name,
        topic.path,
        f"would get {topic.file.partitions} partitions, more than {PARTITIONS_MAX}",
        "write fewer: they can be added later, and never taken away; or add --force",
    )
