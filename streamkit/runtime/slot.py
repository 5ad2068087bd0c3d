"""slot: a worker's stable name on its host, held by a file lock.

The lock ends with the process, however it ends. So whoever gets a slot knows that its former holder is dead: it retires
its writer id (which ends the open transaction) and makes its group membership leave at once, instead of waiting for
the session time-out. A stopped process still holds its lock, and its slot is left alone.
"""

import fcntl
import os
import re
import secrets
import socket
import tempfile
from pathlib import Path

import structlog

from streamkit.errors import Misconfigured

log = structlog.get_logger()

SLOTS_MAX = 1024
# Kafka's own bound is far above the names that it gives, and that we make.
NAME_BYTES_MAX = 1000


class Slot:
    """One numbered place for a worker of a pipeline on this host."""

    def __init__(self, folder: Path, number: int, descriptor: int) -> None:
        self.number = number
        self._descriptor = descriptor
        self._folder = folder
        self._member_file = folder / f"worker-{number}.member"
        self._losses_file = folder / f"worker-{number}.losses"
        self._writer_file = folder / f"worker-{number}.writer"
        # Never the same again, even if the folder is lost: transactional ids are made from it.
        self._token = secrets.token_hex(4)

    @property
    def name(self) -> str:
        """Host and number: stable over restarts."""
        host = re.sub(r"[^A-Za-z0-9_-]", "-", os.environ.get("STREAMKIT_WORKER", socket.gethostname()))
        return f"{host}-{self.number}"

    @property
    def life_name(self) -> str:
        """Our name in this life alone."""
        return f"{self.name}.{self._token}"

    def former_member(self) -> str | None:
        """The group member id of the dead former holder, if it left one."""
        return _read(self._member_file)

    def remember_member(self, member_id: str) -> None:
        """Leave our member id for whoever gets this slot after us."""
        _write(self._member_file, member_id)

    def former_writer(self) -> str | None:
        """The writer id of the dead former holder, if it left one."""
        return _read(self._writer_file)

    def remember_writer(self, writer_id: str) -> None:
        """Leave our writer id for whoever gets this slot after us."""
        _write(self._writer_file, writer_id)

    def forget_member(self) -> None:
        """We left the group ourselves."""
        self._member_file.unlink(missing_ok=True)

    def read_losses(self) -> list[bytes]:
        """What was written down of records that held a worker for too long: our own, then that of this host's others."""
        others = sorted(file for file in self._folder.glob("worker-*.losses") if file != self._losses_file)
        return [_read_bytes(file) for file in (self._losses_file, *others)]

    def write_losses(self, data: bytes) -> None:
        """Write our own down, all or nothing: the process may end right after."""
        temporary = self._losses_file.with_suffix(".losses-new")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._losses_file)

    def release(self) -> None:
        """Let others have the slot."""
        os.close(self._descriptor)


def _read(file: Path) -> str | None:
    """What a former holder has left; a file that a crash or somebody has damaged says nothing."""
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return None
    text = data[: NAME_BYTES_MAX + 1].decode(errors="replace")
    if len(data) <= NAME_BYTES_MAX and text.isascii() and text.isprintable():
        return text or None
    log.warning("the file of the former worker is damaged: its session has to time out", file=str(file))
    return None


def _write(file: Path, text: str) -> None:
    temporary = file.with_name(f"{file.name}.new")
    temporary.write_text(text)
    temporary.replace(file)


def _read_bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # there is none, or it is not ours to read: then nothing is known
        return b""


def take_slot(folder: Path) -> Slot:
    """The first free slot in this folder.

    Raises:
        Misconfigured: the folder cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for number in range(SLOTS_MAX):
            descriptor = os.open(folder / f"worker-{number}.lock", os.O_CREAT | os.O_RDWR, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            return Slot(folder, number, descriptor)
    except OSError as error:
        raise unwritable(folder, error) from None
    raise Misconfigured(f'all {SLOTS_MAX} worker slots in "{folder}" are taken')


def require_folder(folder: Path) -> None:
    """Make the folder, and look whether files can be made in it; takes no slot.

    Raises:
        Misconfigured: the folder cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise unwritable(folder, error) from None


def unwritable(folder: Path, error: OSError) -> Misconfigured:
    """A state folder in which nothing can be kept."""
    return Misconfigured(
        f'state folder "{folder}" cannot be written to',
        detail=error.strerror or str(error),
        hint="set --state-dir or STREAMKIT_STATE_DIR to a folder of this user",
    )
