"""What became of a bounded pipeline, from the commits of its tasks: true over crashes and any number of workers."""

import msgspec
import pytest

import streamkit as sk
from streamkit.errors import Retry
from streamkit.graph.policy import ErrorPolicy
from streamkit.runtime import outcome as outcome_module
from streamkit.runtime.last_commits import last_commits
from streamkit.runtime.outcome import Outcome, finished, is_bounded, outcome_of
from streamkit.testing import Harness
from streamkit.windows import tumbling


class Sale(msgspec.Struct):
    shop: str
    at: int
    amount: int = 1


SALES = sk.topic("sales", Sale, time="at", late=sk.seconds(0))
TOTALS = sk.topic("totals", int)


def totals(*, until: str | None = "latest", on_error: ErrorPolicy | None = None) -> sk.Pipeline:
    pipeline = sk.pipeline("totals-of-shops", on_error=on_error)
    sales = pipeline.read_keyed(SALES, until=until)  # type: ignore[call-overload]
    windows = sales.map(refuse_negative, to=Sale).window(tumbling(sk.seconds(1)))
    sums = windows.sum(lambda sale: sale.amount, to=int, name="sum")
    sums.key_by(lambda _: "all", name="all").map(lambda total: total, to=int).write(TOTALS)
    return pipeline


def refuse_negative(sale: Sale) -> Sale:
    if sale.amount < 0:
        raise ValueError("negative")
    return sale


def outcome(harness: Harness, pipeline: sk.Pipeline, **how: bool) -> Outcome | None:
    return harness._do(finished(pipeline.plan(), harness._log, **how))


def send(harness: Harness) -> None:
    """Twelve records of two shops: one is late, one cannot be read, one is refused."""
    for second in (1, 2, 3, 4, 5):
        harness.send(SALES, Sale("a", second * 1000), key="a")
        harness.send(SALES, Sale("b", second * 1000), key="b")
    harness.send(SALES, Sale("a", 1000), key="a")
    harness.send_bytes("sales", b"rubbish", key=b"a")
    harness.send(SALES, Sale("b", 6000, -1), key="b")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("policy", [sk.dead_letter(), sk.skip(), sk.dead_letter(retries=1, delay_s=0.1)])
def test_records_in_and_out_late_ones_and_dead_letters_are_counted(workers, policy):
    pipeline = totals(on_error=policy)
    with Harness(pipeline, workers=0, partitions=1) as harness:
        send(harness)
        assert outcome(harness, pipeline) is None
        harness.scale(workers)
        harness.run()
        harness.advance(3)
        harness.dead_letters()
        assert outcome(harness, pipeline, has_just_run=True) == Outcome(
            pipeline="totals-of-shops",
            is_finished=True,
            records_in=13,
            records_out=10,
            late=1,
            dead_letters=2,
        )


def test_a_crash_in_the_middle_changes_no_count():
    pipeline = totals()
    with Harness(pipeline, workers=0, partitions=2, slice_records=2, commit_interval_s=0.001) as harness:
        send(harness)
        harness.scale(1)
        for _ in range(3):
            harness.advance(0.02)
            harness.crash()
            harness.restart()
        harness.run()
        harness.advance(3)
        found = outcome(harness, pipeline)
        assert found is not None
        assert (found.records_in, found.dead_letters) == (13, len(harness.dead_letters()))
        assert found.records_out == len(harness.read(TOTALS))


def test_a_pipeline_that_goes_on_has_no_outcome():
    pipeline = totals(until=None)
    assert not is_bounded(pipeline.plan())
    with Harness(pipeline) as harness:
        harness.run()
        assert outcome(harness, pipeline) is None


def test_nothing_but_dead_letters_is_told_apart():
    def outcome_with(**counts: int) -> Outcome:
        empty = dict.fromkeys(("records_in", "records_out", "late", "dead_letters"), 0)
        return Outcome(pipeline="p", is_finished=True, **{**empty, **counts})

    assert outcome_with(records_in=3, dead_letters=3).is_all_dead
    assert not outcome_with(records_in=3, dead_letters=2).is_all_dead
    assert not outcome_with(records_in=3, dead_letters=3, records_out=1).is_all_dead
    assert not outcome_with().is_all_dead


def test_what_was_committed_a_moment_ago_gets_time_to_become_visible(monkeypatch):
    """As on a real broker, which acknowledges the end of a transaction before its markers are written."""
    pipeline = totals()
    with Harness(pipeline, workers=0, partitions=1) as harness:
        harness.send(SALES, Sale("a", 1000), key="a")
        harness.scale(1)
        harness.run()
        harness.advance(3)
        admin = type(harness._log.admin())
        original, asked = admin.end_offsets, []

        async def end_offsets(self, partitions, *, committed):
            found = await original(self, partitions, committed=committed)
            asked.append(committed)
            return dict.fromkeys(found, 0) if committed and len(asked) < 6 else found

        monkeypatch.setattr(admin, "end_offsets", end_offsets)
        assert outcome(harness, pipeline, has_just_run=True) is not None


def test_an_outcome_of_nothing_is_no_end():
    pipeline = totals()
    with Harness(pipeline, workers=0) as harness:
        found = harness._do(outcome_of(pipeline.plan(), harness._log))
        assert (found.is_finished, found.records_in) == (False, 0)


class Refuse(sk.Operator[str, Sale, int]):
    """Fails at every record of a share, or at all, behind a shuffle."""

    seen = sk.value(int, 0)

    def __init__(self, share: int) -> None:
        self._share = share

    def on_record(self, value: Sale, ctx: sk.Context[str, int]) -> None:
        self.seen.set(self.seen.get() + 1)
        if value.amount % self._share == 0:
            raise ValueError("refused")
        ctx.emit(value.amount)


@pytest.mark.parametrize("place", ["map", "operator"])
@pytest.mark.parametrize("share", [1, 3, 100])
def test_many_that_fail_are_all_counted(place, share):
    def refuse(sale: Sale) -> Sale:
        if sale.amount % share == 0:
            raise ValueError("refused")
        return sale

    pipeline = sk.pipeline("refusing")
    sales = pipeline.read(SALES, until="latest")
    if place == "map":
        sales.map(refuse).map(lambda sale: sale.amount, to=int).write(TOTALS)
    else:
        sales.key_by(lambda sale: sale.shop).process(Refuse(share)).write(TOTALS)
    with Harness(pipeline, workers=0, partitions=1) as harness:
        for number in range(2_000):
            harness.send(SALES, Sale("a", 1000, number), key="a")
        harness.scale(1)
        harness.run()
        harness.advance(3)
        refused = len(harness.dead_letters())
        assert refused == len(range(0, 2_000, share))
        found = outcome(harness, pipeline, has_just_run=True)
    assert (found.records_in, found.records_out, found.dead_letters) == (2_000, 2_000 - refused, refused)


def test_a_changelog_that_gives_no_answer_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker must not end over it."""
    pipeline, failures = totals(), []

    async def read(plan, log):
        if len(failures) < 3:
            failures.append(plan.name)
            raise Retry("no answer")
        return await last_commits(plan, log)

    monkeypatch.setattr(outcome_module, "last_commits", read)
    with Harness(pipeline, partitions=1) as harness:
        harness.send(SALES, Sale("a", 1000), key="a")
        harness.run()
        assert outcome(harness, pipeline) is not None
    assert len(failures) == 3
