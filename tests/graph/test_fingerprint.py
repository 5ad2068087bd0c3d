import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import streamkit as sk
from streamkit.errors import IncompatiblePlan
from streamkit.graph.fingerprint import (
    Drop,
    _compare_stores,
    compare,
    describe_plan,
    fingerprint,
    given_up,
)
from streamkit.graph.pipeline import Pipeline, pipeline
from streamkit.graph.resolve import resolve
from streamkit.operators.process import Context, Operator
from streamkit.runtime.agree import require_compatible
from streamkit.state.collection_views import map_of
from streamkit.state.views import value
from streamkit.task.identity import identify
from tests.graph.shop import Click, by_number, by_page, clicks, counts, is_human, top_pages, unique

ROOT = Path(__file__).resolve().parent.parent.parent


def described(p: Pipeline, partitions: int = 4) -> dict[str, Any]:
    """What would be stored: as JSON, and read back."""
    plan = resolve(p.plan(), {"clicks": partitions, "taps": partitions})
    read: dict[str, Any] = json.loads(json.dumps(describe_plan(plan)))
    return read


def operator(**declared: Any) -> Operator[str, Click, Click]:
    def on_record(self: Any, value: Click, ctx: Context[str, Click]) -> None: ...

    made: Operator[str, Click, Click] = type("Seen", (Operator,), {"on_record": on_record, **declared})()
    return made


def seen(**declared: Any) -> Pipeline:
    p = pipeline("p")
    p.read(clicks).key_by(by_page).process(operator(**declared)).write(unique)
    return p


def counting(
    *, name: str = "count", key: Callable[[Click], Any] = by_page, filtered: bool = False
) -> Pipeline:
    p = pipeline("p")
    stream = p.read(clicks).filter(is_human) if filtered else p.read(clicks)
    stream.key_by(key, name="shuffle").count(name=name).write(counts)
    return p


def test_a_plan_is_compatible_with_itself() -> None:
    assert compare(described(top_pages()), described(top_pages())) == []


def test_code_and_stateless_steps_may_change() -> None:
    old, new = counting(), counting(filtered=True)
    assert fingerprint(old.plan()) == fingerprint(new.plan())
    assert compare(described(old), described(new)) == []


def test_a_store_may_be_added() -> None:
    old, new = seen(a=value(int)), seen(a=value(int), b=map_of(str, int))
    assert fingerprint(old.plan()) != fingerprint(new.plan())
    assert compare(described(old), described(new)) == []


def test_a_stage_may_be_added() -> None:
    new = counting()
    new.read(clicks).key_by(by_number).count(name="other").write(counts)
    assert compare(described(counting()), described(new)) == []


def test_a_renamed_step_is_told() -> None:
    assert compare(described(counting()), described(counting(name="counted"))) == [
        'Store "count" of stage "shuffle" is gone (was it renamed to "counted"?); its state would be lost.'
    ]


def test_a_vanished_stage_is_told() -> None:
    new = pipeline("p")
    new.read(clicks).key_by(by_page, name="renamed").count().write(counts)
    assert compare(described(counting()), described(new)) == [
        'Store "count" moved from stage "shuffle" to stage "renamed"; its state stays in the old changelog.'
    ]
    bare = pipeline("p")
    bare.read(clicks).write(unique)
    assert compare(described(counting()), described(bare)) == [
        'Stage "shuffle" is gone, and with it the state of store "count".'
    ]


def test_a_shuffle_key_of_another_type_is_told() -> None:
    assert compare(described(counting()), described(counting(key=by_number))) == [
        'The keys of "p.shuffle.shuffle.1" changed from str to int; stage "shuffle" would not find its state.'
    ]


def test_another_partition_count_is_told_where_keys_have_owners() -> None:
    assert compare(described(counting(), 4), described(counting(), 6)) == [
        '"p.shuffle.shuffle.1" has 6 partitions instead of 4; its keys have other owners in stage "shuffle".'
    ]
    keyed = pipeline("p")
    keyed.read_keyed(clicks).count().write(counts)
    assert compare(described(keyed, 4), described(keyed, 6)) == [
        '"clicks" has 6 partitions instead of 4; its keys have other owners in stage "clicks".'
    ]


def test_counts_that_are_not_known_yet_say_nothing() -> None:
    assert compare(describe_plan(counting().plan()), described(counting(), 6)) == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            value(int),
            value(str),
            'Store "Seen.a" of stage "by_page" changed its type from int to str without a new version; declare version=2 with an upcaster.',
        ),
        (value(int), value(str, version=2, upcasters={1: str}), None),
        (
            value(int, version=2),
            value(int),
            'Store "Seen.a" of stage "by_page" has version 1, its state has version 2.',
        ),
        (value(int), map_of(str, int), 'Store "Seen.a" of stage "by_page" changed from a value to a map.'),
        (
            map_of(str, int),
            map_of(int, int),
            'The map keys of store "Seen.a" of stage "by_page" changed from str to int.',
        ),
    ],
    ids=["type", "type with version", "older version", "kind", "map key"],
)
def test_a_changed_store_is_told(old: Any, new: Any, told: str | None) -> None:
    assert compare(described(seen(a=old)), described(seen(a=new))) == ([told] if told else [])


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    code = "from tests.graph.shop import top_pages; from streamkit.graph.fingerprint import fingerprint; print(fingerprint(top_pages().plan()))"
    found = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        answer = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(answer.stdout.strip())
    # Written down, so that no release changes it by accident: a changed fingerprint stops running pipelines.
    assert found == {fingerprint(top_pages().plan())} == {"a8dcea2b9bae9d1a"}


def test_a_renamed_operator_takes_its_stores_along_by_their_own_names() -> None:
    was = {"kind": "value", "type": "int", "version": 1}
    old = {"AddUp.orders": was}
    new = {"SumUp.cents": was, "SumUp.orders": was}
    (told,) = map(str, _compare_stores("shop", {"stores": old}, {"stores": new}))
    assert 'renamed to "SumUp.orders"?' in told


def test_what_is_given_up_is_named_where_and_only_where_it_must_be_allowed() -> None:
    bare, renamed = pipeline("p"), pipeline("p")
    bare.read(clicks).write(unique)
    renamed.read(clicks).key_by(by_page, name="renamed").count().write(counts)
    old = described(counting())
    for new in (counting(), counting(filtered=True), counting(name="other"), bare, renamed, seen()):
        drops = [each for each in compare(old, described(new)) if isinstance(each, Drop)]
        assert bool(given_up(old, described(new))) == bool(drops)
    assert given_up(old, described(counting(name="other"))) == ['store "count" of stage "shuffle"']
    assert given_up(old, described(renamed)) == ['store "count" of stage "shuffle"']


def test_the_hint_says_nothing_else_than_the_detail() -> None:
    """A sentence that says itself what to do is not followed by a hint to do something else."""
    pipeline = sk.pipeline("p")
    pipeline.read(sk.topic("a", str)).write(sk.topic("b", str))
    ours = identify(pipeline.plan())
    store = {"kind": "value", "type": "int", "version": 1}
    stage = {"partitions": 1, "inputs": {}}
    new = {**ours.description, "stages": {"s": stage | {"stores": {"n": {**store, "type": "str"}}}}}
    plan = msgspec.structs.replace(ours, description=new)

    def refused(*stores: str) -> IncompatiblePlan:
        old = {**new, "stages": {"s": stage | {"stores": dict.fromkeys(stores, store)}}}
        with pytest.raises(IncompatiblePlan) as error:
            require_compatible(old, plan, allow_dropped=False)
        return error.value

    typed = refused("n")
    assert "declare version=2 with an upcaster" in typed.detail
    assert typed.hint == "do what the detail says, or start under a new pipeline name"
    both = refused("n", "gone")
    assert both.hint == (
        "do what the detail says, or give the steps their former names and types back, "
        "or start under a new pipeline name"
    )
    gone = msgspec.structs.replace(plan, description={**new, "stages": {"s": stage | {"stores": {}}}})
    with pytest.raises(IncompatiblePlan) as error:
        require_compatible(new, gone, allow_dropped=False)
    assert error.value.hint == (
        "give the steps their former names and types back, or start under a new pipeline name, "
        "or give up for good what is named here: `streamkit run --allow-dropped-state`"
    )
