"""What a process may use of its machine."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from streamkit.config import Settings
from streamkit.runtime.host import FILES_SHARE, files_for_state, memory_for_state, memory_limit
from streamkit.runtime.processes import WORKER_COUNT_VARIABLE, WORKER_NUMBER_VARIABLE
from streamkit.runtime.worker import open_storage

MIB = 1024 * 1024
PHYSICAL = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def host(root: Path, groups: str, **files: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for name, content in files.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/").replace("DOT", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


@pytest.mark.parametrize(
    ("groups", "files", "wanted"),
    [
        ("0::/\n", {"memoryDOTmax": f"{64 * MIB}\n"}, 64 * MIB),
        ("0::/a/b\n", {"a__b__memoryDOTmax": "max\n", "a__memoryDOTmax": f"{32 * MIB}\n"}, 32 * MIB),
        ("0::/on/the/host\n", {"memoryDOTmax": f"{16 * MIB}\n"}, 16 * MIB),
        ("5:cpu:/x\n4:memory:/x\n", {"memory__x__memoryDOTlimit_in_bytes": f"{48 * MIB}\n"}, 48 * MIB),
        ("4:memory:/on/the/host\n", {"memory__memoryDOTlimit_in_bytes": f"{8 * MIB}\n"}, 8 * MIB),
        ("4:memory:/x\n", {"memory__x__memoryDOTlimit_in_bytes": "9223372036854771712\n"}, PHYSICAL),
        ("0::/\n", {"memoryDOTmax": "max\n"}, PHYSICAL),
        ("", {}, PHYSICAL),
    ],
)
def test_the_memory_of_a_container_is_its_limit(
    groups: str, files: dict[str, str], wanted: int, tmp_path: Path
) -> None:
    assert memory_limit(host(tmp_path, groups, **files)) == wanted


def test_where_there_is_no_proc_the_machine_is_the_limit(tmp_path: Path) -> None:
    assert memory_limit(tmp_path) == PHYSICAL


def test_workers_of_one_parent_divide_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = open_storage(Settings(store="memory"), tmp_path).budget.total_bytes
    assert alone == memory_for_state(1) <= PHYSICAL
    monkeypatch.setenv(WORKER_NUMBER_VARIABLE, "2")
    monkeypatch.setenv(WORKER_COUNT_VARIABLE, "4")
    assert open_storage(Settings(store="memory"), tmp_path).budget.total_bytes == alone // 4
    chosen = Settings(store="memory", memory_bytes=7 * MIB)
    assert open_storage(chosen, tmp_path).budget.total_bytes == 7 * MIB


def test_the_soft_limit_of_open_files_is_raised_as_far_as_it_goes() -> None:
    code = (
        "import resource\n"
        "from streamkit.runtime.host import files_for_state\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))\n"
        "print(files_for_state(), *resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    files, soft, hard = map(int, printed.split())
    assert files == int(soft * FILES_SHARE) > 128
    assert soft <= hard or hard == resource.RLIM_INFINITY
    assert files_for_state() > 0
