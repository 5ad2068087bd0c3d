"""What of a plan its stored state depends on: described, compared with the plan that runs, and put into one short text.

Only names, types and counts that decide where records go and what state means. Code may change, steps without state
may come and go, stores may be added. Nothing here depends on the process, the Python version or a memory address.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from streamkit.codec.naming import type_name
from streamkit.graph.plan import Plan
from streamkit.graph.stage import Input, Stage
from streamkit.model.topic_shape import so_many
from streamkit.state.kinds import cells_class
from streamkit.state.spec import StoreSpec

# A description as plain data: what JSON gives back is equal to what was written.
Description = dict[str, Any]

# What the description of every store has; what else is there, its kind adds: `Cells.details`.
_OF_EVERY_STORE = {"kind", "type", "version"}

_encode = msgspec.json.Encoder(order="sorted").encode


def fingerprint(plan: Plan) -> str:
    """Sixteen hexadecimal digits that are equal if the state of one plan means the same to the other."""
    return hashlib.sha256(_encode(describe_plan(plan))).hexdigest()[:16]


def describe_plan(plan: Plan) -> Description:
    """Everything about a plan that its stored state depends on."""
    return {
        "pipeline": plan.name,
        "generation": plan.generation,
        "key_groups": plan.key_groups,
        "stages": {stage.name: describe_state(stage) for stage in plan.stages},
    }


def describe_state(stage: Stage) -> Description:
    """Everything about a stage that its stored state depends on. Sources matter by key, shuffles by value too."""
    described: Description = {
        "partitions": stage.partitions,
        "inputs": {each.topic: _input(each) for each in stage.inputs},
        "stores": {store.name: _store(store) for store in stage.stores},
    }
    # A step may say what its state means beyond its type; the state of one definition is of no use to another.
    definitions = {
        each.step.name: each.step.definition for each in stage.steps if hasattr(each.step, "definition")
    }
    return described | ({"definitions": definitions} if definitions else {})


class Advised(str):
    """A sentence that says itself what to do."""

    __slots__ = ()


class Drop(str):
    """A sentence about state, or shuffled records, that nobody would have any more: a person may allow it."""

    __slots__ = ()


def compare(old: Description, new: Description, *, allow_dropped: bool = False) -> list[str]:
    """What in `new` would lose or misread the state that was written under `old`: one sentence each, none if all is well.

    Both are from `describe_plan`. With `allow_dropped`, state that `new` no longer has may be lost; what is left of it in
    the changelog must then never be taken for state again, so a store that comes back is a problem.
    """
    problems: list[str] = [
        Advised(
            f'Store "{store}" of stage "{name}" was dropped by an earlier version, and what is left of it is out of date;'
            f' give it another name, for example "{store}_2".'
        )
        for name, stores in old.get("dropped", {}).items()
        for store in stores
        if store in new["stages"].get(name, {}).get("stores", {})
    ]
    if old["key_groups"] != new["key_groups"]:
        problems.append(
            f"The number of key groups changed from {old['key_groups']} to {new['key_groups']}; it can never change."
        )
    for name, stage in old["stages"].items():
        if name in new["stages"]:
            problems += compare_stage(name, stage, new["stages"][name])
        else:
            problems += _vanished_stage(name, stage, new)
    return [each for each in problems if not (allow_dropped and isinstance(each, Drop))]


def given_up(old: Description, new: Description) -> list[str]:
    """What `compare` lets go if that is allowed, in words; none if it has nothing to allow."""
    lost: list[str] = []
    for name, stage in old["stages"].items():
        is_gone = name not in new["stages"]
        now = {"stores": {}, "inputs": {}} if is_gone else new["stages"][name]
        lost += [
            f'store "{store}" of stage "{name}"' for store in stage["stores"] if store not in now["stores"]
        ]
        if not (is_gone and stage["stores"]):
            lost += [
                f'what was not yet read of shuffle "{topic}" of stage "{name}"'
                for topic, each in stage["inputs"].items()
                if each["kind"] == "shuffle" and topic not in now["inputs"]
            ]
    return lost


def dropped_stores(old: Description, new: Description) -> dict[str, list[str]]:
    """By stage the stores that were dropped before, and those that `new` does not have any more."""
    gone = {name: set(stores) for name, stores in old.get("dropped", {}).items()}
    for name, stage in old["stages"].items():
        if name in new["stages"]:
            gone[name] = gone.get(name, set()) | (
                stage["stores"].keys() - new["stages"][name]["stores"].keys()
            )
    return {name: sorted(stores) for name, stores in gone.items() if stores}


def compare_stage(name: str, old: Description, new: Description) -> list[str]:
    """As `compare`, for one stage; both are from `describe_state`."""
    return [
        *_compare_inputs(name, old, new),
        *_compare_stores(name, old, new),
        *compare_definitions(name, old.get("definitions", {}), new.get("definitions", {})),
    ]


def _input(each: Input) -> Description:
    described = {"kind": each.kind, "key": type_name(each.key_type), "partitions": each.partitions}
    # The value type of a source may change with its topic; a shuffle holds records of ours that must still be read.
    return described | ({"value": type_name(each.value_type)} if each.kind == "shuffle" else {})


def _store(store: StoreSpec) -> Description:
    described: Description = {
        "kind": store.kind,
        "type": type_name(store.value_type),
        "version": store.version,
    }
    return described | cells_class(store).details(store)


def _differ(old: Any, new: Any) -> bool:
    """Counts of a plan that is not resolved are None, and say nothing."""
    return old is not None and new is not None and old != new


def _vanished_stage(name: str, stage: Description, new: Description) -> Iterator[Drop]:
    """A stage without state may go; one with state takes the state with it."""
    homes = {store: other for other, each in new["stages"].items() for store in each["stores"]}
    for store in stage["stores"]:
        if store in homes:
            yield Drop(
                f'Store "{store}" moved from stage "{name}" to stage "{homes[store]}"; its state stays in the old changelog.'
            )
        else:
            yield Drop(f'Stage "{name}" is gone, and with it the state of store "{store}".')
    if not stage["stores"] and any(each["kind"] == "shuffle" for each in stage["inputs"].values()):
        yield Drop(
            f'Stage "{name}" is gone; records that were shuffled to it and not yet read would be lost.'
        )


def _compare_inputs(name: str, old: Description, new: Description) -> Iterator[str]:
    for topic, was in old["inputs"].items():
        now = new["inputs"].get(topic)
        if now is None:
            if was["kind"] == "shuffle":
                yield Drop(
                    f'Stage "{name}" no longer reads shuffle "{topic}"; what is in it and not yet read would be lost.'
                )
            continue
        if was["key"] != now["key"] and (was["kind"] == "shuffle" or old["stores"]):
            yield f'The keys of "{topic}" changed from {was["key"]} to {now["key"]}; stage "{name}" would not find its state.'
        if was.get("value") != now.get("value"):
            yield f'The values of "{topic}" changed from {was["value"]} to {now["value"]}; records not yet read are of the old type.'
        if _differ(was["partitions"], now["partitions"]) and (was["kind"] == "shuffle" or old["stores"]):
            yield f'"{topic}" has {so_many(now["partitions"])} instead of {was["partitions"]}; its keys have other owners in stage "{name}".'


def _compare_stores(name: str, before: Description, after: Description) -> Iterator[str]:
    old, new = before["stores"], after["stores"]
    added = {store: each for store, each in new.items() if store not in old}
    for store, was in old.items():
        if store not in new:
            yield gone(store, name, twin_of(store, before, after | {"stores": added}))
        else:
            yield from compare_store(store, name, was, new[store])


def gone(store: str, stage: str, twin: str | None) -> Drop:
    """The sentence about a store that nobody has any more, and which may have another name now."""
    maybe = f' (was it renamed to "{twin}"?)' if twin else ""
    return Drop(f'Store "{store}" of stage "{stage}" is gone{maybe}; its state would be lost.')


def twin_of(store: str, before: Description, after: Description) -> str | None:
    """Of the stores `after` the one that most likely is this one of `before` by another name."""
    was, meant = before["stores"][store], _definition(store, before.get("definitions", {}))
    twins = [
        other
        for other, each in after["stores"].items()
        if each == was and _definition(other, after.get("definitions", {})) == meant
    ]
    twins.sort(key=lambda other: (_last_name(other) != _last_name(store), other))
    return twins[0] if twins else None


def compare_store(store: str, stage: str, was: Description, now: Description) -> Iterator[str]:
    """Why what was written as this store of a stage cannot be read as it is now, in a sentence; nothing if it can."""
    if was["kind"] != now["kind"]:
        yield f'Store "{store}" of stage "{stage}" changed from a {was["kind"]} to a {now["kind"]}.'
    elif detail := _changed_detail(was, now):
        words = detail.replace("_", " ")
        yield f'The {words}s of store "{store}" of stage "{stage}" changed from {was.get(detail)} to {now.get(detail)}.'
    elif now["version"] < was["version"]:
        yield f'Store "{store}" of stage "{stage}" has version {now["version"]}, its state has version {was["version"]}.'
    elif was["type"] != now["type"] and was["version"] == now["version"]:
        yield Advised(
            f'Store "{store}" of stage "{stage}" changed its type from {was["type"]} to {now["type"]}'
            f" without a new version; declare version={was['version'] + 1} with an upcaster."
        )


def _changed_detail(was: Description, now: Description) -> str | None:
    """The first of what only this kind of store has in its description that is not as it was."""
    details = sorted((was.keys() | now.keys()) - _OF_EVERY_STORE)
    return next((each for each in details if was.get(each) != now.get(each)), None)


def step_of(store: str, definitions: Mapping[str, str]) -> str | None:
    """The step of a store, if that says what its state means."""
    owners = [step for step in definitions if store == step or store.startswith(f"{step}.")]
    return max(owners, key=len, default=None)


def _definition(store: str, definitions: Mapping[str, str]) -> str | None:
    """What the step of a store says that its state means, if it says so."""
    step = step_of(store, definitions)
    return None if step is None else definitions[step]


def _last_name(store: str) -> str:
    """The name of a store without that of its operator."""
    return store.rpartition(".")[2]


def compare_definitions(name: str, old: Description, new: Description) -> Iterator[str]:
    """Whose state means something else now. A step that is gone takes its stores with it, which is told already."""
    for step, was in old.items():
        now = new.get(step, was)
        if was != now:
            yield Advised(
                f'Step "{step}" of stage "{name}" changed from {was} to {now}, and its open windows would be misread;'
                f" make it what it was; or give it another name, for example name="
                f'"{step}_2", and start with --allow-dropped-state, which gives up its open windows.'
            )
