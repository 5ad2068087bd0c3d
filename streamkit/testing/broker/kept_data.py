"""A folder that keeps the data of a local cluster from one run to the next: topics, records and positions.

A file in it says whose data this is. It is looked at before anything is written: Kafka would refuse the data of another
cluster late and in its own words, and might change that of another version for good.
"""

import fcntl
from pathlib import Path
from typing import IO

import msgspec

from streamkit.errors import Misconfigured
from streamkit.testing.broker.jars import kafka_version
from streamkit.testing.broker.settings import kafka_id

MARK = "streamkit-broker.json"
LOCK = "lock"
SHOWN_NAMES = 5


class Mark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose data a folder holds."""

    kafka: str
    nodes: int
    cluster_id: str


class KeptData:
    """A folder that is ours until it is released, or our process ends."""

    def __init__(self, folder: Path, cluster_id: str, lock: IO[str]) -> None:
        self.folder = folder
        self.cluster_id = cluster_id
        self._lock = lock

    def release(self) -> None:
        """Let other processes take it; calling it again does nothing."""
        self._lock.close()


def take_folder(folder: Path, nodes: int) -> KeptData:
    """Take a folder for the data of so many nodes; an empty one, or one that does not exist, begins a new cluster.

    Raises:
        Misconfigured: it holds something else, or data that this cluster cannot go on with, or is in use.
    """
    folder = folder.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _require_ours(folder)
        lock = _locked(folder)
    except OSError as error:
        raise Misconfigured(
            "no data can be kept in this folder",
            where=str(folder),
            detail=f"{error.strerror or error}",
            hint="name a folder that can be written to with --data",
        ) from error
    try:
        mark = _read_mark(folder) or _begin(folder, nodes)
        _require_same(folder, mark, nodes)
    except BaseException:
        lock.close()
        raise
    return KeptData(folder, mark.cluster_id, lock)


def _require_ours(folder: Path) -> None:
    """Refuse a folder with files of others, before one of ours is among them."""
    names = sorted({path.name for path in folder.iterdir()} - {LOCK})
    if names and MARK not in names:
        more = len(names) - SHOWN_NAMES
        raise Misconfigured(
            "this folder holds something else than the data of a broker of ours",
            where=str(folder),
            detail=", ".join(names[:SHOWN_NAMES]) + (f" and {more} more" if more > 0 else ""),
            hint="name a folder with --data that is empty or does not exist yet",
        )


def _locked(folder: Path) -> IO[str]:
    lock = (folder / LOCK).open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise Misconfigured(
            "another broker runs on the data in this folder",
            where=str(folder),
            hint=f"use that broker, or end it (`fuser {folder / LOCK}` shows its process), or name another folder with --data",
        ) from None
    return lock


def _read_mark(folder: Path) -> Mark | None:
    path = folder / MARK
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Mark)
    except msgspec.MsgspecError as error:
        raise Misconfigured(
            "nobody can tell whose data this is",
            where=str(path),
            detail=str(error),
            hint="name another folder with --data, or remove this one, and all records in it",
        ) from error


def _begin(folder: Path, nodes: int) -> Mark:
    mark = Mark(kafka_version(), nodes, kafka_id())
    (folder / MARK).write_bytes(msgspec.json.encode(mark))
    return mark


def _require_same(folder: Path, mark: Mark, nodes: int) -> None:
    """Refuse what Kafka could not go on with, or only by changing it for good."""
    if mark.kafka != kafka_version():
        raise Misconfigured(
            f"the data in this folder is of Kafka {mark.kafka}, and this is Kafka {kafka_version()}",
            where=str(folder),
            hint="name another folder with --data, or remove this one, and all records in it",
        )
    if mark.nodes != nodes:
        raise Misconfigured(
            f"the data in this folder is that of {_count(mark.nodes)}, and this broker has {_count(nodes)}",
            where=str(folder),
            hint=f"add --nodes {mark.nodes}, or name another folder with --data",
        )


def _count(nodes: int) -> str:
    return f"{nodes} node{'s' if nodes != 1 else ''}"
