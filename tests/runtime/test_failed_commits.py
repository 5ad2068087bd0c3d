"""Commits that outlast their transaction: made again in smaller spans, one after the other, and at last for a person."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

import streamkit as sk
from streamkit.errors import CommitTooSlow, Fenced, Misconfigured, WriterDead
from streamkit.model.commit import Commit
from streamkit.model.ids import TopicPartition
from streamkit.runtime.failed_commits import TRIES_MAX
from streamkit.runtime.retries import LASTING_S
from streamkit.testing import Harness
from streamkit.testing.memory.writer import MemoryWriter
from tests.runtime.pages import VIEWS, View
from tests.runtime.test_watch import LENGTHS, WORDS
from tests.task.test_singly import spend

OUT = sk.topic("copied", View)
TIMEOUT_S = 2.0
# What the log says of a commit that failed by this error, more and more seldom, and as an error once it has lasted.
TOLD = {
    WriterDead: "going back to the commit records",
    Fenced: "the broker refused us as a former owner: joining the group again",
}


def copying() -> sk.Pipeline:
    pipeline = sk.pipeline("copying")
    pipeline.read(VIEWS).write(OUT)
    return pipeline


def slow_commits(
    patch: pytest.MonkeyPatch, lasts_s: Callable[[Commit], float], error: type[Exception] | None = None
) -> list[int]:
    """Let commits take their time: the broker goes by its own clock, or the client raises. Returns how large they were."""
    sizes: list[int] = []
    commit_now = MemoryWriter.commit

    async def commit_slowly(self: MemoryWriter, commit: Commit) -> Any:
        results = [out for out in commit.batches if out.partition.topic == "copied"]
        if results:
            sizes.append(sum(out.count for out in results))
        seconds = lasts_s(commit)
        await asyncio.sleep(seconds)
        if seconds >= TIMEOUT_S:
            raise (error or Fenced)("the broker answered INVALID_PRODUCER_EPOCH")
        return await commit_now(self, commit)

    patch.setattr(MemoryWriter, "commit", commit_slowly)
    return sizes


def per_record(seconds: float) -> Callable[[Commit], float]:
    return lambda commit: (
        seconds * sum(out.count for out in commit.batches if out.partition.topic == "copied")
    )


@pytest.mark.parametrize("error", [Fenced, CommitTooSlow, WriterDead])
def test_a_span_that_takes_too_long_is_committed_in_parts(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """Whoever ended it: the broker, or the client that waited no longer, with or without an answer."""
    with (
        capture_logs() as logs,
        Harness(copying(), partitions=1, workers=0, transaction_timeout_s=TIMEOUT_S) as harness,
    ):
        harness.send(VIEWS, *[View(f"{number}") for number in range(40)], key="k")
        sizes = slow_commits(monkeypatch, per_record(0.1), error)
        harness.scale(1)
        harness.run()
        assert [view.page for view in harness.read(OUT)] == [f"{number}" for number in range(40)]
    assert sizes == [40, 10, 10, 10, 10]
    (said,) = [entry for entry in logs if entry["event"].startswith("a commit lasted longer")]
    assert said["records_per_span"] == 10


def test_a_record_that_holds_the_loop_while_a_commit_is_on_its_way_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A long record outlasts the transaction of the one before it; quick ones between them let the requests go out."""

    def work(word: str) -> int:
        spend(2 * TIMEOUT_S if word == "long" else 0.0)
        return len(word)

    pipeline = sk.pipeline("long")
    pipeline.read(WORDS).map(work).write(LENGTHS)
    produce = MemoryWriter._produce

    async def with_a_way_back(self: MemoryWriter, *args: Any) -> None:
        await produce(self, *args)
        await asyncio.sleep(0.05)

    monkeypatch.setattr(MemoryWriter, "_produce", with_a_way_back)
    with Harness(
        pipeline,
        partitions=1,
        workers=0,
        transaction_timeout_s=TIMEOUT_S,
        session_timeout_s=60.0,
        slice_records=1,
    ) as harness:
        harness.send(WORDS, *["long", *["a"] * 20] * 4)
        harness.scale(1)
        harness.run()
        assert harness.read(LENGTHS) == [4, *[1] * 20] * 4


@pytest.mark.parametrize("error", [Fenced, CommitTooSlow])
def test_a_single_record_that_takes_too_long_each_time_ends_with_a_person(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """Also while the records of other partitions come forward."""
    with Harness(copying(), partitions=2, workers=0, transaction_timeout_s=TIMEOUT_S) as harness:
        for number in range(20):
            harness.send(VIEWS, View(f"{number}"), key=str(number))
        stuck = TopicPartition("copied", 1)

        def lasts_s(commit: Commit) -> float:
            return TIMEOUT_S * any(out.partition == stuck for out in commit.batches)

        sizes = slow_commits(monkeypatch, lasts_s, error)
        harness.scale(1)
        with pytest.raises(Misconfigured, match="a single record") as ended:
            harness.run()
        assert harness.read(OUT)
    assert sizes.count(1) >= TRIES_MAX
    assert "views[1]@0" in ended.value.where
    assert "2.0 s" in ended.value.detail
    assert "STREAMKIT_TRANSACTION_TIMEOUT_S" in ended.value.hint


@pytest.mark.parametrize(("error", "lasts_s"), [(WriterDead, TIMEOUT_S), (Fenced, 0.9 * TIMEOUT_S)])
def test_a_broker_that_is_away_and_another_owner_do_not_end_a_worker(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception], lasts_s: float
) -> None:
    tries = []

    async def in_vain(_self: MemoryWriter, _commit: object) -> None:
        tries.append(1)
        await asyncio.sleep(lasts_s)
        raise error("no answer, or another owner")

    with Harness(copying(), partitions=1, workers=0, transaction_timeout_s=TIMEOUT_S) as harness:
        harness.send(VIEWS, *[View(f"{number}") for number in range(20)], key="k")
        with monkeypatch.context() as patch:
            patch.setattr(MemoryWriter, "commit", in_vain)
            harness.scale(1)
            with capture_logs() as logs:
                harness.advance(600)
        told = [entry for entry in logs if entry["event"] == TOLD[error]]
        assert len(tries) > 2 * TRIES_MAX
        assert len(told) < len(tries) / 2
        assert {entry["log_level"] for entry in told if entry["lasts_s"] >= LASTING_S} == {"error"}
        harness.run()
        assert len(harness.read(OUT)) == 20
