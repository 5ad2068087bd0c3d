"""What becomes of the state in a cut under another generation, name, count or version of a pipeline."""

import json
from typing import Any

import pytest

from streamkit.errors import Bug
from streamkit.graph.fingerprint import Advised, Description, Drop, describe_plan
from streamkit.graph.from_cut import (
    CutComparison,
    compare_with_cut,
    describe_for_cut,
    shuffle_name,
)
from streamkit.graph.pipeline import Pipeline, pipeline
from streamkit.graph.plan import Plan
from streamkit.graph.resolve import resolve
from streamkit.model.duration import seconds
from streamkit.state.collection_views import map_of
from streamkit.state.views import value
from streamkit.windows import tumbling
from tests.graph.shop import by_number, by_page, clicks, counts, is_human, taps, unique
from tests.graph.test_fingerprint import operator

ANEW = (
    'give the store another name, for example "{}_2", and start with --allow-dropped-state: it begins empty.'
)


def planned(p: Pipeline, clicked: int = 4, generation: int = 1) -> Plan:
    return resolve(p.plan(generation=generation), {"clicks": clicked, "taps": 2})


def stored(p: Pipeline, clicked: int = 4, describe: Any = describe_for_cut) -> Description:
    """What stands beside a cut: as JSON, and read back."""
    read: Description = json.loads(json.dumps(describe(planned(p, clicked))))
    return read


def compared(old: Pipeline, new: Pipeline, clicked: int = 4) -> CutComparison:
    return compare_with_cut(stored(old), planned(new, clicked, generation=2))


def counting(
    *, name: str = "count", at: str = "shuffle", key: Any = by_page, filtered: bool = False, **options: Any
) -> Pipeline:
    p = pipeline("p", **options)
    stream = p.read(clicks).filter(is_human) if filtered else p.read(clicks)
    stream.key_by(key, name=at).count(name=name).write(counts)
    return p


def keyed(*, name: str | None = None) -> Pipeline:
    p = pipeline("p")
    p.read_keyed(clicks, name=name).count(name="count").write(counts)
    return p


def seen(**declared: Any) -> Pipeline:
    p = pipeline("p")
    p.read(clicks).key_by(by_page).process(operator(**declared)).write(unique)
    return p


def per_window(size: int) -> Pipeline:
    p = pipeline("p")
    p.read(clicks).key_by(by_page).window(tumbling(seconds(size))).count(name="n").write(counts)
    return p


def mixed(*, partitions: int = 3, with_taps: bool = True) -> Pipeline:
    """One stage with state behind a shuffle, and state of a topic with two partitions."""
    p = pipeline("p")
    stream = p.read(clicks).key_by(by_page, name="s", partitions=partitions).count(name="a").unkeyed()
    if with_taps:
        stream = p.read_keyed(taps).count(name="b").unkeyed().union(stream)
    stream.write(counts)
    return p


def test_another_generation_keeps_everything() -> None:
    found = compared(counting(), counting())
    assert (found.kept, found.refused()) == ({"count": "shuffle"}, [])
    assert found.in_words() == ['Store "count" of stage "shuffle" is kept.']
    assert found.origins() == {"shuffle": ("shuffle",)}


def test_another_pipeline_name_keeps_everything() -> None:
    old = stored(counting())
    renamed = json.loads(json.dumps(old).replace('"p"', '"was"').replace("p.shuffle.", "was.shuffle."))
    assert renamed["pipeline"] == "was"
    found = compare_with_cut(renamed, planned(counting()))
    assert (found.kept, found.refused()) == ({"count": "shuffle"}, [])


def test_a_description_from_before_will_do() -> None:
    assert "fed_by" not in json.dumps(stored(counting(), describe=describe_plan))
    for made in (counting, keyed, mixed, lambda: per_window(60)):
        old = stored(made(), describe=describe_plan)
        found = compare_with_cut(old, planned(made(), generation=2))
        assert found.refused() == []
        assert found.kept.keys() == {store for stage in old["stages"].values() for store in stage["stores"]}


def test_counts_may_change_behind_a_key_by() -> None:
    found = compared(counting(), counting(), clicked=6)
    assert found.refused() == []
    assert found.in_words() == [
        'Store "count" of stage "shuffle" is kept, its keys shared among 6 tasks instead of 4.'
    ]
    taken = compared(counting(partitions=3), counting(partitions=16)).taken["count"]
    assert (taken.placement, taken.tasks_before, taken.tasks) == ("groups", 3, 16)


def test_counts_may_not_change_where_state_lies_by_a_topic() -> None:
    assert compared(keyed(), keyed()).kept == {"count": "clicks"}
    found = compared(keyed(), keyed(), clicked=6)
    assert found.kept == {}
    assert (
        found.refused()
        == found.refused(allow_dropped=True)
        == found.in_words()
        == [
            '"clicks" has 6 partitions instead of 4, and stage "clicks" keeps store "count" by the partitions of'
            " what it reads, which cannot be shared out anew. Put a key_by before the steps with state; or "
            + ANEW.format("count")
        ]
    )


def test_a_stage_may_have_stores_of_both_placements() -> None:
    assert compared(mixed(), mixed()).kept == {"a": "s", "b": "s"}
    found = compared(mixed(), mixed(partitions=5))
    assert found.refused() == []
    assert {store: (each.placement, each.tasks) for store, each in found.taken.items()} == {
        "a": ("groups", 5),
        "b": ("source", 2),
    }
    fewer = compared(mixed(), mixed(with_taps=False))
    assert (fewer.kept, fewer.dropped, fewer.refused(allow_dropped=True)) == ({"a": "s"}, {"b": "s"}, [])
    more = compared(mixed(with_taps=False), mixed())
    assert (more.kept, more.empty, more.refused()) == ({"a": "s"}, {"b": "s"}, [])


def test_a_store_that_is_not_placed_as_before_is_refused() -> None:
    found = compared(counting(), keyed())
    assert found.refused() == [
        'Stage "shuffle" kept store "count" by key groups, behind a key_by, and stage "clicks" keeps it by the'
        " partitions of a topic, as read_keyed does: its keys would have other owners. Let its records come to it as"
        " before; or " + ANEW.format("count")
    ]
    (told,) = compared(keyed(), counting()).refused()
    assert told.startswith(
        'Stage "clicks" kept store "count" by the partitions of a topic, as read_keyed does,'
    )


def test_steps_and_stages_without_state_may_come_and_go() -> None:
    old = pipeline("p")
    passed = old.read(clicks).filter(is_human).key_by(by_number, name="gone").unkeyed()
    passed.key_by(by_page, name="shuffle").count(name="count").write(counts)
    old.read(taps).key_by(by_page, name="too").write(unique)
    found = compared(old, counting())
    assert (found.kept, found.refused(), found.not_read) == ({"count": "shuffle"}, [], ("taps",))
    found = compared(counting(), old)
    assert (found.kept, found.refused(), found.first_read) == ({"count": "shuffle"}, [], ("taps",))
    assert found.in_words()[1:] == ['Topic "taps" was not read before, and is read from its start.']
    assert compared(old, counting()).in_words()[1:] == ['Topic "taps" is not read any more.']


def test_the_values_of_a_shuffle_may_change() -> None:
    new = pipeline("p")
    new.read(clicks).map(by_page, to=str).key_by(str, name="shuffle").count(name="count").write(counts)
    assert compared(counting(), new).kept == {"count": "shuffle"}


def test_a_store_moves_to_a_stage_with_keys_of_the_same_type() -> None:
    found = compared(counting(), counting(at="other"))
    assert (found.kept, found.moved, found.refused()) == ({}, {"count": ("shuffle", "other")}, [])
    assert found.origins() == {"other": ("shuffle",)}
    assert found.in_words() == [
        'Store "count" moves from stage "shuffle" to stage "other"; the keys of both are of type str and must mean the'
        " same."
    ]
    assert compared(keyed(), keyed(name="renamed")).moved == {"count": ("clicks", "renamed")}


@pytest.mark.parametrize("at", ["shuffle", "other"])
def test_keys_of_another_type_are_refused(at: str) -> None:
    found = compared(counting(), counting(at=at, key=by_number))
    assert (found.kept, found.moved) == ({}, {})
    assert found.refused() == [
        'The keys of store "count" of stage "shuffle" changed from str to int, and would not find their state. Let it'
        " have keys of the former type; or " + ANEW.format("count")
    ]


def test_a_store_that_is_gone_may_be_given_up() -> None:
    found = compared(counting(), counting(name="counted"))
    assert (found.kept, found.dropped, found.empty) == ({}, {"count": "shuffle"}, {"counted": "shuffle"})
    (told,) = found.refused()
    assert isinstance(told, Drop)
    assert told == (
        'Store "count" of stage "shuffle" is gone (was it renamed to "counted"?); its state would be lost.'
        " Give it its name back, or start with --allow-dropped-state, which gives it up."
    )
    assert found.refused(allow_dropped=True) == []
    assert found.in_words(allow_dropped=True) == [
        'Store "counted" of stage "shuffle" is new and begins empty.',
        'Store "count" of stage "shuffle" is given up: its state stays in the cut.',
    ]


def test_a_store_that_is_renamed_in_another_stage_is_told() -> None:
    (told,) = compared(counting(), counting(name="counted", at="other")).refused()
    assert 'was it renamed to "counted"?' in told


def test_a_new_step_with_state_begins_empty() -> None:
    found = compared(seen(a=value(int)), seen(a=value(int), b=map_of(str, int)))
    assert (found.kept, found.empty, found.refused()) == ({"Seen.a": "by_page"}, {"Seen.b": "by_page"}, [])


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            value(int),
            value(str),
            'Store "Seen.a" of stage "by_page" changed its type from int to str without a',
        ),
        (value(int), value(str, version=2, upcasters={1: str}), None),
        (value(int, version=2), value(int), 'Store "Seen.a" of stage "by_page" has version 1, its state has'),
        (value(int), map_of(str, int), 'Store "Seen.a" of stage "by_page" changed from a value to a map.'),
        (
            map_of(str, int),
            map_of(int, int),
            'The map keys of store "Seen.a" of stage "by_page" changed from',
        ),
    ],
    ids=["type", "type with version", "older version", "kind", "map key"],
)
def test_a_changed_store_is_refused_as_among_workers(old: Any, new: Any, told: str | None) -> None:
    found = compared(seen(a=old), seen(a=new))
    assert found.kept == ({} if told else {"Seen.a": "by_page"})
    for each in found.refused(allow_dropped=True):
        assert each.startswith(told or "")
        way = "with an upcaster. Or " if "type" in each else ". Make it what it was; or "
        assert each.endswith(way + ANEW.format("Seen.a"))
        assert isinstance(each, Advised)


def test_a_changed_definition_is_refused_once() -> None:
    assert compared(per_window(60), per_window(60)).kept.keys() == {"n", "n.event_timers"}
    found = compared(per_window(60), per_window(30))
    (told,) = found.refused(allow_dropped=True)
    assert 'Step "n" of stage "by_page" changed from tumbling windows of 60000 ms' in told
    assert found.kept == {}


def test_another_number_of_key_groups_is_refused() -> None:
    old = stored(counting()) | {"key_groups": 512}
    (told,) = compare_with_cut(old, planned(counting())).refused(allow_dropped=True)
    assert told.startswith("The number of key groups changed from 512 to 1024")


def test_state_of_another_topic_is_kept_if_that_is_partitioned_alike() -> None:
    p = pipeline("p")
    p.read_keyed(taps, name="clicks").count(name="count").write(counts)
    old = stored(keyed(), clicked=2)
    found = compare_with_cut(old, planned(p))
    assert (found.kept, found.first_read, found.not_read) == ({"count": "clicks"}, ("taps",), ("clicks",))
    (told,) = compare_with_cut(stored(keyed(), clicked=4), planned(p)).refused()
    assert told.startswith('"taps" has 2 partitions instead of 4')


def test_unknown_counts_say_nothing() -> None:
    assert compare_with_cut(stored(keyed()), keyed().plan()).refused() == []
    found = compare_with_cut(describe_for_cut(counting().plan()), planned(counting()))
    assert found.in_words() == ['Store "count" of stage "shuffle" is kept.']


@pytest.mark.parametrize(
    ("name", "generation"), [("by_user", 1), ("a.b", 12), ("x.shuffle.1", 1), ("shuffle", 3)]
)
def test_a_shuffle_is_known_by_its_key_by(name: str, generation: int) -> None:
    p = pipeline("orders")
    p.read(clicks).key_by(by_page, name=name).count().write(counts)
    described = describe_plan(p.plan(generation=generation))
    (topic,) = described["stages"][name]["inputs"]
    assert shuffle_name(topic, described) == name


@pytest.mark.parametrize(
    "topic", ["orders.by_user.changelog.1", "orders.by_user.shuffle.2", "other.by_user.shuffle.1", "clicks"]
)
def test_what_is_no_shuffle_has_no_such_name(topic: str) -> None:
    with pytest.raises(Bug, match="not named like one"):
        shuffle_name(topic, {"pipeline": "orders", "generation": 1})
