"""What is tried again is told more and more seldom, and as an error once it has lasted."""

import asyncio
import itertools

from structlog.testing import capture_logs

from streamkit.config import Settings
from streamkit.errors import Retry
from streamkit.runtime.supervisor import LASTING_S, Backoff, retried
from streamkit.testing.virtual_time import VirtualLoop


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
