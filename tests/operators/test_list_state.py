"""A list in an operator: through restarts, failing records and a new version of its elements."""

import pytest

import streamkit as sk
from streamkit.errors import IncompatiblePlan
from streamkit.graph.describe import as_text
from streamkit.testing import Harness

NUMBERS, SUMS = sk.topic("numbers", int), sk.topic("sums", list[int])


class Recent(sk.Operator[str, int, list[int]]):
    """Sends on what it has of a key; a negative number fails after the state was touched, 0 empties the list."""

    numbers = sk.list_of(int)

    def on_record(self, value: int, ctx: sk.Context[str, list[int]]) -> None:
        self.numbers.add(value)
        if value < 0:
            self.numbers.clear()
            self.numbers.extend([value, value])
            raise ValueError(f"no {value}")
        if value == 0:
            self.numbers.clear()
        ctx.emit(self.numbers.get())


def recent(operator: sk.Operator[str, int, list[int]]) -> sk.Pipeline:
    pipeline = sk.pipeline("recent")
    pipeline.read_keyed(NUMBERS).process(operator, name="recent").write(SUMS)
    return pipeline


@pytest.mark.parametrize("restarts", [False, True])
def test_a_list_survives_restarts_and_records_that_fail(*, restarts: bool) -> None:
    with Harness(recent(Recent()), partitions=1) as harness:
        expected: list[list[int]] = []
        kept: list[int] = []
        for turn in range(6):
            numbers = [3 * turn + 1, -1, 3 * turn + 2, 0 if turn == 3 else 3 * turn + 3, -2]
            harness.send(NUMBERS, *numbers, key="a")
            harness.run()
            for number in numbers:
                if number >= 0:
                    kept = [*kept, number] if number else []
                    expected.append(kept)
            if restarts:
                harness.crash()
                harness.restart()
        assert harness.read(SUMS) == expected
        assert len(harness.dead_letters()) == 12


def test_an_element_that_cannot_be_stored_is_a_dead_letter_of_its_record() -> None:
    class Beyond(Recent):
        def on_record(self, value: int, ctx: sk.Context[str, list[int]]) -> None:
            self.numbers.add(1 << 70 if value == 5 else value)
            ctx.emit([len(self.numbers)])

    with Harness(recent(Beyond()), partitions=1) as harness:
        harness.send(NUMBERS, 1, 5, 2, key="a")
        harness.run()
        assert harness.read(SUMS) == [[1], [2]]
        (letter,) = harness.dead_letters()
        assert b'store "recent.numbers" cannot be written' in (letter.headers["streamkit.error"] or b"")


class InWords(sk.Operator[str, int, list[int]]):
    """`Recent` in a later version, with elements of another type."""

    numbers = sk.list_of(str, version=2, upcasters={1: "number {}".format})

    def on_record(self, value: int, ctx: sk.Context[str, list[int]]) -> None:
        self.numbers.add(f"number {value}")
        ctx.emit([int(each.removeprefix("number ")) for each in self.numbers])


class AsValue(sk.Operator[str, int, list[int]]):
    """The same numbers in one value."""

    numbers = sk.value(list[int])

    def on_record(self, value: int, ctx: sk.Context[str, list[int]]) -> None:
        """Never reached."""


def test_elements_of_an_older_version_are_read() -> None:
    with Harness(recent(Recent()), partitions=1) as harness:
        harness.send(NUMBERS, 1, 2, key="a")
        harness.run()
        harness.change_pipeline(recent(InWords()))
        harness.send(NUMBERS, 3, key="a")
        harness.run()
        assert harness.read(SUMS)[-1] == [1, 2, 3]


def test_a_list_is_a_kind_of_its_own_in_graph_and_fingerprint() -> None:
    assert "state recent.numbers: list of int, version 1" in as_text(recent(Recent()).plan())
    with Harness(recent(Recent()), partitions=1) as harness:
        harness.send(NUMBERS, 1, key="a")
        harness.run()
        with pytest.raises(IncompatiblePlan) as caught:
            harness.change_pipeline(recent(AsValue()))
    assert "changed from a list to a value" in caught.value.detail
