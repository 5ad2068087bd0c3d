"""What is tried again is told more and more seldom, and as an error once it has lasted."""

import asyncio
import itertools

import pytest
from structlog.testing import capture_logs

from streamkit.config import Settings
from streamkit.errors import Retry
from streamkit.model.commit import Commit
from streamkit.model.ids import TopicPartition
from streamkit.runtime.retries import LASTING_S, Backoff, retried
from streamkit.testing import Harness
from streamkit.testing.virtual_time import VirtualLoop
from tests.runtime.pages import VIEWS, View, counting


def test_a_broker_that_is_away_for_a_day_is_told_of_some_thirty_times() -> None:
    loop = VirtualLoop(0)
    day_s = 24 * 3600.0

    async def fail_for_a_day() -> float:
        if loop.time() < day_s:
            raise Retry("nobody answers")
        return loop.time()

    with capture_logs() as logs:
        assert loop.run_until_complete(retried("joining", Backoff(Settings()), fail_for_a_day)) >= day_s
    loop.close()
    assert 15 <= len(logs) <= 40
    assert logs[0]["failures"] == 1
    for each in logs:
        assert each["log_level"] == ("error" if each["lasts_s"] >= LASTING_S else "warning")
    pauses = [after["lasts_s"] - before["lasts_s"] for before, after in itertools.pairwise(logs)]
    assert max(pauses) < 2 * 3600  # a person who looks at an hour of the log finds it there


def test_a_success_begins_the_count_anew() -> None:
    answers = iter([Retry("away"), None])

    async def act() -> None:
        if (answer := next(answers)) is not None:
            raise answer

    async def twice() -> None:
        nonlocal answers
        await retried("joining", Backoff(Settings()), act)
        answers = iter([Retry("away"), None])
        await retried("joining", Backoff(Settings()), act)

    loop = VirtualLoop(0)
    with capture_logs() as logs:
        loop.run_until_complete(asyncio.wait_for(twice(), 60))
    loop.close()
    assert [each["failures"] for each in logs] == [1, 1]


def test_commits_that_failed_before_others_succeeded_are_another_story(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or one that fails today is told as lasting since yesterday, or not at all."""
    left = 0
    with capture_logs() as logs, Harness(counting(), partitions=1) as harness:
        harness.send(VIEWS, View("home"))
        harness.run()
        loop = harness.workers[0].loop
        assert loop is not None
        write = loop._parts.writer.commit

        async def commit(span: Commit) -> dict[TopicPartition, int]:
            nonlocal left
            left -= 1
            if left >= 0:
                raise Retry("nobody answers")
            return dict(await write(span))

        monkeypatch.setattr(loop._parts.writer, "commit", commit)
        for failures in (2, 1, 3, 1):
            left = failures
            harness.send(VIEWS, View("home"))
            harness.run()
            harness.advance(LASTING_S * 2)
    told = [each for each in logs if each["event"].startswith("going back")]
    assert [each["failures"] for each in told] == [1, 2, 1, 1, 2, 1]
    assert {each["log_level"] for each in told} == {"warning"}
