"""A worker that is refused as an owner again and again waits for longer each time."""

import pytest

from streamkit.errors import Fenced
from streamkit.testing import Harness
from streamkit.testing.memory.writer import MemoryWriter
from tests.runtime.pages import COUNTS, VIEWS, View, counting


def test_a_transaction_that_is_aborted_each_time_is_tried_with_growing_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries = []

    async def too_slow(self: MemoryWriter, _commit: object) -> None:
        tries.append(self.writer_id)
        raise Fenced("the transaction took longer than its time-out")

    with Harness(counting(), partitions=1) as harness:
        with monkeypatch.context() as patch:
            harness.send(VIEWS, View("a"), key="a")
            patch.setattr(MemoryWriter, "commit", too_slow)
            harness.advance(10)
            early = len(tries)
            harness.advance(100)
            assert early >= 3
            assert len(tries) - early < 40
        harness.run()
        assert len(harness.read(COUNTS)) == 1
