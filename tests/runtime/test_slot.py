import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streamkit.errors import Misconfigured
from streamkit.runtime.slot import take_slot


def test_two_workers_on_a_host_get_two_slots(tmp_path):
    first, second = take_slot(tmp_path), take_slot(tmp_path)
    assert (first.number, second.number) == (0, 1)
    assert first.name != second.name
    first.release()
    assert take_slot(tmp_path).number == 0


def test_a_slot_remembers_the_member_of_the_process_that_was_killed(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from streamkit.runtime.slot import take_slot\n"
        "slot = take_slot(Path(sys.argv[1])); slot.remember_member('member-7'); print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        other = take_slot(tmp_path)
        assert other.number == 1
        assert other.former_member() is None
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    deadline = time.monotonic() + 5
    while (taken := take_slot(tmp_path)).number != 0:
        taken.release()
        assert time.monotonic() < deadline
    assert taken.former_member() == "member-7"
    taken.forget_member()
    assert taken.former_member() is None


def test_a_folder_that_cannot_be_written_to_is_a_clear_error():
    with pytest.raises(Misconfigured) as refused:
        take_slot(Path("/proc/streamkit"))
    assert "cannot be written to" in refused.value.problem
    assert "--state-dir" in refused.value.hint
