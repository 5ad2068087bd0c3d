"""A start from a cut: what becomes of the state in it, store by store, under a plan of another generation or name.

At a cut nothing is on its way, and what is started from it has internal topics of its own. So shuffles and steps without
state may come, change and go; counts may change behind a `key_by`; stores may move to another stage with keys of the same
type. State may not be misread, and is not given up unless a person allows it. `compare` in `graph/fingerprint.py` is for
workers of one generation, which read on where others have stopped, and is stricter.

Names are compared without pipeline and generation: a shuffle by its `key_by`, a store by its own name, which is unique in
the pipeline. Only the stores that are kept or moved may be taken out of the cut; of all others nothing may be.
"""

from collections.abc import Iterator, Mapping

import msgspec

from streamkit.errors import Bug
from streamkit.graph.fingerprint import (
    Advised,
    Description,
    Drop,
    compare_definitions,
    compare_store,
    describe_plan,
    gone,
    step_of,
    twin_of,
)
from streamkit.graph.plan import Plan
from streamkit.graph.stage import Placement, Stage, placement_of
from streamkit.model.topic_shape import so_many

# What an input is called in every generation and under every name: its kind, and the name of its topic or `key_by`.
InputName = tuple[str, str]

_IN_WORDS: Mapping[Placement, str] = {
    "groups": "by key groups, behind a key_by",
    "source": "by the partitions of a topic, as read_keyed does",
}


class Taken(msgspec.Struct, frozen=True):
    """A store that is taken out of a cut: by whom, and how its rows find their new tasks.

    With placement `groups` a row belongs to task group * tasks // KEY_GROUPS of `stage`, whichever task had it; with
    `source` to the task of the same number. `tasks` counts those which its keys are shared among, which may be fewer than
    the stage has; it is None where the plan is not resolved.
    """

    origin: str
    stage: str
    placement: Placement
    key: str
    tasks_before: int | None
    tasks: int | None

    def sharing(self) -> str:
        """The end of a sentence about the store, if its keys get other owners."""
        if None in (self.tasks_before, self.tasks) or self.tasks_before == self.tasks:
            return ""
        return f", its keys shared among {_so_many_tasks(self.tasks)} instead of {self.tasks_before}"


class CutComparison(msgspec.Struct, frozen=True, kw_only=True):
    """What a start from a cut does with each store. One that is refused is in `refused()` alone."""

    # Stores that stay in their stage or move to another, and of those alone anything may be taken out of the cut.
    taken: Mapping[str, Taken]
    # By store, the stage where it begins empty, or where it was in the cut.
    empty: Mapping[str, str]
    dropped: Mapping[str, str]
    # Topics that were not read before, and topics that are not read any more.
    first_read: tuple[str, ...]
    not_read: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def kept(self) -> dict[str, str]:
        """By store the stage that has had it and has it."""
        return {store: each.stage for store, each in self.taken.items() if each.origin == each.stage}

    @property
    def moved(self) -> dict[str, tuple[str, str]]:
        """By store the stage that has had it, and the one that has it now."""
        return {
            store: (each.origin, each.stage)
            for store, each in self.taken.items()
            if each.origin != each.stage
        }

    def origins(self) -> dict[str, tuple[str, ...]]:
        """By stage of the new plan, the stages of the cut that its state comes from."""
        pairs = sorted({(each.stage, each.origin) for each in self.taken.values()})
        return {stage: tuple(origin for to, origin in pairs if to == stage) for stage, _ in pairs}

    def refused(self, *, allow_dropped: bool = False) -> list[str]:
        """Why there can be no such start, and what to do: a sentence or two for each reason, none if all is well."""
        return [each for each in self.problems if not (allow_dropped and isinstance(each, Drop))]

    def in_words(self, *, allow_dropped: bool = False) -> list[str]:
        """Everything that such a start does, a sentence each, for the person who asks for it."""
        return [
            *(
                f'Store "{store}" of stage "{each.stage}" is kept{each.sharing()}.'
                for store, each in self.taken.items()
                if each.origin == each.stage
            ),
            *(
                f'Store "{store}" moves from stage "{each.origin}" to stage "{each.stage}"{each.sharing()};'
                f" the keys of both are of type {each.key} and must mean the same."
                for store, each in self.taken.items()
                if each.origin != each.stage
            ),
            *(
                f'Store "{store}" of stage "{at}" is new and begins empty.'
                for store, at in self.empty.items()
            ),
            *(f'Topic "{each}" was not read before, and is read from its start.' for each in self.first_read),
            *(f'Topic "{each}" is not read any more.' for each in self.not_read),
            *(
                f'Store "{store}" of stage "{at}" is given up: its state stays in the cut.'
                for store, at in self.dropped.items()
                if allow_dropped
            ),
            *self.refused(allow_dropped=allow_dropped),
        ]


def describe_for_cut(plan: Plan) -> Description:
    """What is stored of a plan beside a cut: as `describe_plan`, and the inputs whose records come to each store."""
    described = describe_plan(plan)
    stages = {stage.name: described["stages"][stage.name] | _fed_by(stage) for stage in plan.stages}
    return described | {"stages": stages}


def shuffle_name(topic: str, described: Description) -> str:
    """The name of the `key_by` that a shuffle topic in a description belongs to.

    Raises:
        Bug: the topic is no shuffle of that pipeline and generation.
    """
    begin, end = f"{described['pipeline']}.", f".shuffle.{described['generation']}"
    if not (topic.startswith(begin) and topic.endswith(end) and len(topic) > len(begin) + len(end)):
        raise Bug(
            f'topic "{topic}" is described as a shuffle of pipeline "{described["pipeline"]}",'
            f" generation {described['generation']}, and is not named like one"
        )
    return topic[len(begin) : -len(end)]


def compare_with_cut(old: Description, new: Plan) -> CutComparison:
    """What becomes of the state in a cut if `new` is started from it; `old` is what is stored of the plan beside it.

    `old` is from `describe_for_cut`. One from `describe_plan` will do: where a stage has sources and shuffles, it does not
    say which of them a store belongs to, and then the store is taken to be fed as it is in `new`. Counts of a plan that
    is not resolved are unknown and nothing is said about them, so `new` should be resolved.
    """
    return _Comparing(old, describe_for_cut(new)).result()


def _fed_by(stage: Stage) -> Description:
    fed = {store: [each.topic for each in inputs] for store, inputs in stage.fed_by().items()}
    return {"fed_by": fed} if fed else {}


class _Home(msgspec.Struct, frozen=True):
    """A store as one plan has it: where it is, what it holds, and which inputs feed it."""

    stage: str
    placement: Placement
    store: Description
    feeds: Mapping[InputName, Description]

    def keys(self) -> str:
        """The type of its keys; several, if it is not known which."""
        return " or ".join(sorted({each["key"] for each in self.feeds.values()}))

    def tasks(self) -> int | None:
        """How many tasks its keys are shared among."""
        counts = [each["partitions"] for each in self.feeds.values()]
        return None if None in counts else max(counts, default=None)


class _Comparing:
    """The plan of a cut and the one that is to start from it, on the way to a `CutComparison`."""

    def __init__(self, old: Description, new: Description) -> None:
        self.old, self.new = old, new
        self.after = _homes(new, {})
        self.before = _homes(old, self.after)
        self.added = {
            name: {each: is_ for each, is_ in stage["stores"].items() if each not in self.before}
            for name, stage in new["stages"].items()
        }
        self.definitions: Description = {}
        for stage in new["stages"].values():
            self.definitions |= stage.get("definitions", {})

    def result(self) -> CutComparison:
        problems: list[str] = []
        if self.old["key_groups"] != self.new["key_groups"]:
            groups = self.old["key_groups"], self.new["key_groups"]
            problems.append(
                Advised(
                    f"The number of key groups changed from {groups[0]} to {groups[1]}; it can never change. Start without the cut."
                )
            )
        taken: dict[str, Taken] = {}
        for store, was in self.before.items():
            now = self.after.get(store)
            if now is None:
                problems.append(self._lost(store, was))
            elif found := list(self._misread(store, was, now)):
                problems += found
            else:
                taken[store] = Taken(
                    was.stage, now.stage, now.placement, now.keys(), was.tasks(), now.tasks()
                )
        sources_before, sources_now = _sources(self.old), _sources(self.new)
        return CutComparison(
            taken=taken,
            empty={store: home.stage for store, home in self.after.items() if store not in self.before},
            dropped={store: home.stage for store, home in self.before.items() if store not in self.after},
            first_read=tuple(sorted(sources_now - sources_before)),
            not_read=tuple(sorted(sources_before - sources_now)),
            problems=tuple(dict.fromkeys(problems)),
        )

    def _lost(self, store: str, was: _Home) -> Drop:
        before = self.old["stages"][was.stage]
        here = self.new["stages"].get(was.stage, {"stores": {}})
        everywhere = {name: each for added in self.added.values() for name, each in added.items()}
        twin = twin_of(store, before, here | {"stores": self.added.get(was.stage, {})}) or twin_of(
            store, before, {"stores": everywhere, "definitions": self.definitions}
        )
        sentence = gone(store, was.stage, twin)
        return Drop(
            f"{sentence} Give it its name back, or start with --allow-dropped-state, which gives it up."
        )

    def _misread(self, store: str, was: _Home, now: _Home) -> Iterator[str]:
        """Why the state would not be found, or not be understood."""
        anew = f'give the store another name, for example "{store}_2", and start with --allow-dropped-state: it begins empty'
        for reason in _misplaced(store, was, now):
            yield Advised(f"{reason}; or {anew}.")
        for reason in compare_store(store, was.stage, was.store, now.store):
            way = "Or" if isinstance(reason, Advised) else "Make it what it was; or"
            yield Advised(f"{reason} {way} {anew}.")
        meant: Mapping[str, str] = self.old["stages"][was.stage].get("definitions", {})
        if step := step_of(store, meant):
            yield from compare_definitions(was.stage, {step: meant[step]}, self.definitions)


def _misplaced(store: str, was: _Home, now: _Home) -> Iterator[str]:
    """Why a key would not find its state in the task that has the key now, and the way back: sentences without an end."""
    if was.keys() != now.keys():
        yield (
            f'The keys of store "{store}" of stage "{was.stage}" changed from {was.keys()} to {now.keys()}, and would not find'
            " their state."
            " Let it have keys of the former type"
        )
    elif was.placement != now.placement:
        before, after = _IN_WORDS[was.placement], _IN_WORDS[now.placement]
        yield (
            f'Stage "{was.stage}" kept store "{store}" {before}, and stage "{now.stage}" keeps it {after}: its keys would'
            " have other owners. Let its records come to it as before"
        )
    elif now.placement == "source" and None not in (was.tasks(), now.tasks()) and was.tasks() != now.tasks():
        _, topic = max(now.feeds, key=lambda each: now.feeds[each]["partitions"])
        yield (
            f'"{topic}" has {so_many(now.tasks() or 0)} instead of {was.tasks()}, and stage "{was.stage}" keeps store'
            f' "{store}" by the partitions of what it reads, which cannot be shared out anew. Put a key_by before the'
            " steps with state"
        )


def _homes(described: Description, assumed: Mapping[str, _Home]) -> dict[str, _Home]:
    """Every store of a plan; `assumed` says of one whose inputs are not described how it is fed."""
    homes: dict[str, _Home] = {}
    for name, stage in described["stages"].items():
        for store, each in stage["stores"].items():
            feeds = _feeds(described, name, store, assumed.get(store))
            homes[store] = _Home(name, placement_of(kind for kind, _ in feeds), each, feeds)
    return homes


def _feeds(
    described: Description, name: str, store: str, assumed: _Home | None
) -> dict[InputName, Description]:
    stage = described["stages"][name]
    inputs = {
        _input_name(topic, each, described): each
        for topic, each in stage["inputs"].items()
        if topic in stage.get("fed_by", {}).get(store, stage["inputs"])
    }
    if "fed_by" in stage or assumed is None or assumed.stage != name:
        return inputs
    return {each: is_ for each, is_ in inputs.items() if each in assumed.feeds} or inputs


def _input_name(topic: str, each: Description, described: Description) -> InputName:
    kind = each["kind"]
    return kind, shuffle_name(topic, described) if kind == "shuffle" else topic


def _so_many_tasks(count: int | None) -> str:
    return f"{count} task{'' if count == 1 else 's'}"


def _sources(described: Description) -> set[str]:
    return {
        topic
        for stage in described["stages"].values()
        for topic, each in stage["inputs"].items()
        if each["kind"] == "source"
    }
