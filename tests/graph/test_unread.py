"""A side output that nobody reads is no fault, and is said wherever a person looks at the pipeline."""

import asyncio

from structlog.testing import capture_logs

import streamkit as sk
from streamkit.cli.check import check
from streamkit.cli.options import Cluster
from streamkit.graph.describe import as_dict, as_text
from streamkit.graph.unread import unread_sides
from streamkit.runtime.cautions import log_cautions

ODD, EVEN = sk.side("odd", int), sk.side("even", int)
numbers = sk.topic("numbers", int)
SAID = 'side output "odd" of step "Split" is read by nobody: what is sent there is dropped'


class Split(sk.Operator[str, int, int]):
    sides = (ODD, EVEN)

    def on_record(self, value: int, ctx: sk.Context[str, int]) -> None:
        ctx.emit_to(EVEN if value % 2 == 0 else ODD, value)


def split(*sides: sk.Side[int]) -> sk.Pipeline:
    p = sk.pipeline("p")
    results = p.read_keyed(numbers).process(Split())
    for each in sides:
        results.side(each).write(sk.topic(each.name, int))
    return p


p = split(EVEN)


def test_a_side_that_no_stream_begins_at_is_found() -> None:
    assert unread_sides(p.plan()) == [SAID]
    assert unread_sides(split(EVEN, ODD).plan()) == []


def test_the_drawing_ends_with_it() -> None:
    assert as_text(p.plan()).endswith(f"\n\n! {SAID}")
    assert as_dict(p.plan())["warnings"] == [SAID]
    assert "!" not in as_text(split(EVEN, ODD).plan())


def test_check_shows_it_and_finds_no_fault_in_it(capsys) -> None:
    asyncio.run(check("tests.graph.test_unread:p", cluster=Cluster(brokers="127.0.0.1:1")))
    assert f"! {SAID}\n" in capsys.readouterr().out


def test_a_run_logs_it_once() -> None:
    with capture_logs() as logs:
        log_cautions(p.plan())
    assert [each["event"] for each in logs] == [SAID]
