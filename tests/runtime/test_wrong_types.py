"""A value of another type than its topic, its shuffle or its state declares is an error of its record."""

import dataclasses
from typing import Any, TypedDict

import pytest

import streamkit as sk
from streamkit.codec.exact import exact_class
from streamkit.testing import Harness
from tests.runtime.pages import COUNTS, VIEWS, Count, View, as_count, page_of


@dataclasses.dataclass
class Point:
    x: int


class Loose(TypedDict):
    x: int


@pytest.mark.parametrize(
    ("value_type", "exact"),
    [
        (Count, Count),
        (Count | None, Count),
        (Point, Point),
        (int, int),
        (list[int], list),
        (int | str, None),
        (Any, None),
        (dict, None),
        (Loose, None),
    ],
)
def test_a_type_has_an_exact_class_where_one_tells(value_type, exact):
    assert exact_class(value_type) is exact


@pytest.mark.parametrize(
    ("value_type", "value"),
    [(Count, 7), (Count, View("a")), (int, True), (int, "7"), (float, "7"), (list[int], 7), (Count, None)],
)
def test_a_value_that_is_not_of_its_topics_type_is_a_dead_letter(value_type, value):
    out = sk.topic("out", value_type)
    pipeline = sk.pipeline("typed")
    pipeline.read(VIEWS).map(lambda _: value, to=value_type).write(out)
    with Harness(pipeline) as harness:
        harness.send(VIEWS, View("a"))
        harness.run()
        assert harness.read(out) == []
        (letter,) = harness.dead_letters()
        assert letter.headers["streamkit.step"] == b"write_out"
        assert b'topic "out" takes a value of type' in (letter.headers["streamkit.error"] or b"")


class Longer(Count):
    more: int = 0


@pytest.mark.parametrize(
    ("value_type", "value", "read"),
    [
        (float, 7, 7.0),
        (Count, Longer("a", 1), Count("a", 1)),
        (Count, {"page": "a", "views": 1}, Count("a", 1)),
        (Count | None, None, None),
        (list[int], (1, 2), [1, 2]),
    ],
)
def test_a_value_that_reads_back_as_its_topics_type_is_written(value_type, value, read):
    out = sk.topic("out", value_type)
    pipeline = sk.pipeline("typed")
    pipeline.read(VIEWS).map(lambda _: value, to=value_type).write(out)
    with Harness(pipeline) as harness:
        harness.send(VIEWS, View("a"))
        harness.run()
        assert harness.read(out) == [read]


def test_a_value_of_another_type_is_noticed_before_it_is_shuffled():
    pipeline = sk.pipeline("shuffled")
    wrong = pipeline.read(VIEWS).map(lambda view: Count(view.page, 1), to=View)
    wrong.key_by(page_of).count(name="n").map_keyed(as_count).write(COUNTS)
    with Harness(pipeline) as harness:
        harness.send_bytes("views", b'{"page": "a"}')
        harness.run()
        assert [count.page for count in harness.read(COUNTS)] == ["a"]  # it reads back as a View
    pipeline = sk.pipeline("shuffled")
    wrong = pipeline.read(VIEWS).map(lambda _: 7, to=View)
    wrong.key_by(lambda _: "a", key_type=str, name="by").count(name="n").map_keyed(as_count).write(COUNTS)
    with Harness(pipeline) as harness:
        harness.send(VIEWS, View("a"))
        harness.run()
        (letter,) = harness.dead_letters()
        assert letter.headers["streamkit.topic"] == b"views"
        assert letter.headers["streamkit.step"] == b"by"
