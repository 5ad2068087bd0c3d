import pytest

from streamkit.config import Settings
from streamkit.errors import Misconfigured
from streamkit.runtime.worker import run_worker
from tests.runtime.pages import counting


async def test_a_state_folder_that_cannot_be_written_to_is_told_before_a_broker_is_waited_for():
    settings = Settings(brokers="127.0.0.1:1", state_dir="/proc/streamkit", start_timeout_s=2.0)
    with pytest.raises(Misconfigured, match=r'state folder "/proc/streamkit/pages" cannot be written to'):
        await run_worker(counting().plan(), settings)
