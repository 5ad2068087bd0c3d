"""host: what this process may use of the machine: memory of its container, open files."""

import os
import resource
from pathlib import Path

# The share of the container's memory that state gets: the interpreter, fetched batches and the user's code need the rest.
MEMORY_SHARE = 0.5
# A limit without end means that there is none.
_NO_LIMIT = 1 << 60
# More open files than any worker needs; where the hard limit is infinite, the soft one should not be.
FILES_MAX = 65_536
# Of the files that a process may open, connections and the rest of the program need some.
FILES_SHARE = 0.5


def memory_for_state(workers: int) -> int:
    """What one of this many workers of a parent may take for its state, in bytes."""
    return int(memory_limit() * MEMORY_SHARE) // max(1, workers)


def memory_limit(root: Path = Path("/")) -> int:
    """The memory of this container, or of the machine, in bytes."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([physical, *_cgroup_limits(root)])


def _cgroup_limits(root: Path) -> list[int]:
    """The limits of our control group and of those that it lies in, of either version."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found: list[int] = []
    mounts = root / "sys/fs/cgroup"
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            found += _limits(mounts, path, "memory.max")
        elif "memory" in controllers.split(","):
            found += _limits(mounts / "memory", path, "memory.limit_in_bytes")
    return found


def _limits(mount: Path, path: str, name: str) -> list[int]:
    # Inside a container the mount is often our group itself, and the path is one of the host: what is not there is
    # passed over.
    group = mount / path.strip("/")
    places = [group, *(each for each in group.parents if each.is_relative_to(mount))]
    return [limit for place in places if (limit := _read_limit(place / name)) is not None]


def _read_limit(file: Path) -> int | None:
    try:
        limit = int(file.read_text())
    except (OSError, ValueError):  # not there, or "max"
        return None
    return limit if limit < _NO_LIMIT else None


def files_for_state() -> int:
    """How many files the databases of this process may hold open; asks for as many as the system gives."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    limit = FILES_MAX if soft == resource.RLIM_INFINITY else min(soft, FILES_MAX)
    return int(limit * FILES_SHARE)
