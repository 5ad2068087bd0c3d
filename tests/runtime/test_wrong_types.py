"""A value of another type than its topic, its shuffle or its state declares is an error of its record."""

import dataclasses
from typing import Annotated, Any, TypedDict

import msgspec
import pytest

import streamkit as sk
from streamkit.codec.exact import exact_class, plain_class
from streamkit.errors import Misconfigured
from streamkit.model.duration import seconds
from streamkit.testing import Harness
from streamkit.windows import tumbling
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
    ("value_type", "plain"),
    [
        (int, int),
        (str | None, str),
        (Annotated[int, msgspec.Meta(ge=0)], None),
        (int | str, None),
        (Count, None),
        (list, None),
        (Any, None),
    ],
)
def test_a_type_is_plain_where_its_class_says_all(value_type, plain):
    assert plain_class(value_type) is plain


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


class Profile(msgspec.Struct):
    age: int = 0


class Ages(sk.Operator[str, View, Count]):
    """Keeps a profile of which the age may be no number."""

    profile = sk.value(Profile)

    def on_record(self, value: View, ctx: sk.Context[str, Count]) -> None:
        seen = (self.profile.get() or Profile()).age + 1
        self.profile.set(Profile("old" if value.user == "bad" else seen))  # type: ignore[arg-type]
        ctx.emit(Count(value.page, seen))


def bad_or_new(old: View, new: View) -> View:
    return View(old.page, 5) if new.user == "bad" else new  # type: ignore[arg-type]


def with_ages() -> sk.Pipeline:
    pipeline = sk.pipeline("ages")
    pipeline.read(VIEWS).key_by(page_of).process(Ages(), name="kept").write(COUNTS)
    return pipeline


def with_reduce() -> sk.Pipeline:
    pipeline = sk.pipeline("ages")
    reduced = pipeline.read(VIEWS).key_by(page_of).reduce(bad_or_new, name="kept")
    reduced.map(lambda view: Count(view.page, 1), to=Count).write(COUNTS)
    return pipeline


def with_windows() -> sk.Pipeline:
    pipeline = sk.pipeline("ages")
    windows = pipeline.read(VIEWS).key_by(page_of).window(tumbling(seconds(60), time="processing"))
    windows.reduce(bad_or_new, name="kept").map(lambda view: Count(view.page, 1), to=Count).write(COUNTS)
    return pipeline


@pytest.mark.parametrize("build", [with_ages, with_reduce, with_windows])
def test_state_that_is_wrong_inside_is_a_dead_letter_of_the_record_that_set_it(build):
    with Harness(build(), partitions=1) as harness:
        harness.send(VIEWS, View("a"), View("b"), View("a"), View("b"), View("a", "bad"))
        harness.run()
        (letter,) = harness.dead_letters()
        assert letter.headers["streamkit.step"] == b"state"
        error = letter.headers["streamkit.error"] or b""
        assert b'a value of store "kept' in error
        assert b"is not of the declared type; at key b'a'; Expected `" in error
        harness.crash()
        harness.restart()
        harness.send(VIEWS, View("a"), View("b"))
        harness.advance(70)
        assert harness.dead_letters() == []
        assert {count.page for count in harness.read(COUNTS)} == {"a", "b"}


def keeping(value_type: Any) -> sk.Pipeline:
    class Keeping(sk.Operator[str, View, Count]):
        kept = sk.value(value_type)

        def on_record(self, value: View, ctx: sk.Context[str, Count]) -> None:
            known = self.kept.get()
            if known is None and value.page == "a":
                self.kept.set(value_type("old"))
            ctx.emit(Count(value.page, 0 if known is None else 1))
            ctx.set_timer(ctx.now + 1_000, clock="processing")

        def on_timer(self, timer: sk.Timer, ctx: sk.Context[str, Count]) -> None:  # noqa: ARG002
            self.kept.get()

    pipeline = sk.pipeline("keeping")
    pipeline.read(VIEWS).key_by(page_of).process(Keeping(), name="kept").write(COUNTS)
    return pipeline


def test_state_of_a_type_that_was_changed_without_a_version_is_for_a_person():
    """Good records must not be set aside because somebody forgot to raise the version."""
    former = msgspec.defstruct("Profile", [("age", str)])
    with Harness(keeping(former), partitions=1) as harness:
        harness.send(VIEWS, View("a"))
        harness.run()
        harness.change_pipeline(keeping(Profile))
        harness.send(VIEWS, View("a"))
        with pytest.raises(Misconfigured, match="of another type than declared") as ended:
            harness.run()
        assert ended.value.where == "key b'a'"
        assert "upcaster" in ended.value.hint
        assert harness.dead_letters() == []
