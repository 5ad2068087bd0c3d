import asyncio

import pytest
from structlog.testing import capture_logs

from streamkit.config import Settings
from streamkit.errors import BrokerUnreachable, Misconfigured
from streamkit.runtime.arrive import wait_for_broker
from streamkit.testing.virtual_time import VirtualLoop


class Broker:
    """One that is up from some moment on."""

    def __init__(self, loop: VirtualLoop, up_at_s: float) -> None:
        self.loop = loop
        self.up_at_s = up_at_s
        self.tries: list[float] = []

    async def connect(self) -> None:
        self.tries.append(self.loop.time())
        if self.loop.time() < self.up_at_s:
            raise BrokerUnreachable("no broker", detail="refused")


@pytest.fixture
def loop():
    loop = VirtualLoop(0)
    yield loop
    loop.close()


def test_a_worker_waits_for_its_broker_and_says_so_with_growing_pauses(loop):
    broker = Broker(loop, 25.0)
    with capture_logs() as logs:
        assert loop.run_until_complete(wait_for_broker(broker.connect, Settings()))
    pauses = [after - before for before, after in zip(broker.tries, broker.tries[1:], strict=False)]
    assert pauses == pytest.approx([0.5, 1, 2, 4, 8, 10], abs=0.01)
    assert [each["event"] for each in logs] == ["waiting for a broker"] * 6
    assert {each["log_level"] for each in logs} == {"info"}


def test_it_gives_up_after_the_start_timeout_and_says_how_long_it_waited(loop):
    broker = Broker(loop, 1_000.0)
    with pytest.raises(BrokerUnreachable, match=r"refused\nwaited for 30 s \(start_timeout_s\)"):
        loop.run_until_complete(wait_for_broker(broker.connect, Settings(start_timeout_s=30.0)))
    assert broker.tries[-1] == pytest.approx(30.0, abs=0.1)


def test_zero_seconds_is_one_try(loop):
    broker = Broker(loop, 1.0)
    with pytest.raises(BrokerUnreachable):
        loop.run_until_complete(wait_for_broker(broker.connect, Settings(start_timeout_s=0.0)))
    assert len(broker.tries) == 1


def test_a_worker_that_is_told_to_stop_while_it_waits_ends_at_once(loop):
    async def told_to_stop() -> bool:
        stopping = asyncio.Event()
        loop.call_later(3.0, stopping.set)
        return await wait_for_broker(Broker(loop, 1_000.0).connect, Settings(), stopping)

    assert loop.run_until_complete(told_to_stop()) is False
    assert loop.time() == pytest.approx(3.0, abs=0.1)


def test_a_broker_that_refuses_us_is_not_waited_for(loop):
    async def refuse() -> None:
        raise Misconfigured("wrong password")

    with pytest.raises(Misconfigured):
        loop.run_until_complete(wait_for_broker(refuse, Settings()))
    assert loop.time() < 0.1
