"""Listing: which savepoints there are, whether one is sound, and removing it."""

import tempfile
from pathlib import Path
from shutil import rmtree

import msgspec

from streamkit.errors import Misconfigured, SnapshotDamaged
from streamkit.snapshots import layout
from streamkit.snapshots.manifest import Manifest
from streamkit.snapshots.manifest_file import load_manifest
from streamkit.snapshots.rows_file import Shelf, fetch
from streamkit.snapshots.store import AlreadyStored, NotStored, SnapshotStore

# How a store of snapshots is laid out, as a whole: what each of them holds, its manifest says.
LAYOUT_VERSION = 1


class _Format(msgspec.Struct, frozen=True):
    """What `format.json` says."""

    format: int
    pipeline: str


class Savepoint(msgspec.Struct, frozen=True):
    """One that was finished: what its manifest says, or why that cannot be read."""

    id: str
    manifest: Manifest | None
    problem: str = ""


class Verified(msgspec.Struct, frozen=True):
    """What a look at every byte has found: one sentence for each file that is not as it was written."""

    files: int
    rows: int
    bytes: int
    problems: list[str]


def open_pipeline(store: SnapshotStore, pipeline: str) -> None:
    """Make sure that the store may keep snapshots of this pipeline, and that we know how it keeps them.

    Raises:
        Misconfigured: a newer release laid it out, or it is another pipeline's.
    """
    name = layout.format_file(pipeline)
    try:
        store.create(name, msgspec.json.encode(_Format(LAYOUT_VERSION, pipeline)))
    except AlreadyStored:
        try:
            found = msgspec.json.decode(store.get(name), type=_Format)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SnapshotDamaged(
                "the snapshot store does not say how it is laid out",
                where=name,
                detail=str(error),
                hint=f"if only streamkit writes there, delete this file: it is written again, with format {LAYOUT_VERSION}",
            ) from error
        if found.format > LAYOUT_VERSION:
            raise Misconfigured(
                f"the snapshot store has format {found.format}, and this release knows {LAYOUT_VERSION}",
                where=name,
                hint="use the release that made it or a newer one, or give this pipeline another store",
            ) from None
        if found.pipeline != pipeline:
            raise Misconfigured(
                f'the snapshot store is that of pipeline "{found.pipeline}"',
                where=name,
                hint="give each pipeline a store or a folder of its own",
            ) from None


def list_savepoints(store: SnapshotStore, pipeline: str) -> list[Savepoint]:
    """All savepoints that were finished, the oldest first; those that cannot be read stand at the end."""
    found: list[Savepoint] = []
    for savepoint in _ids(store, pipeline, only_finished=True):
        try:
            found.append(Savepoint(savepoint, show_savepoint(store, pipeline, savepoint)))
        except NotStored:
            continue  # deleted meanwhile
        except Misconfigured as error:
            found.append(Savepoint(savepoint, None, str(error)))
    return sorted(
        found, key=lambda each: (each.manifest is None, each.manifest and each.manifest.at_ms, each.id)
    )


def list_unfinished(store: SnapshotStore, pipeline: str) -> list[str]:
    """The ids under which there are files and no manifest: being written, or left behind."""
    finished = set(_ids(store, pipeline, only_finished=True))
    return [each for each in _ids(store, pipeline, only_finished=False) if each not in finished]


def show_savepoint(store: SnapshotStore, pipeline: str, savepoint: str) -> Manifest:
    """What a savepoint's manifest says.

    Raises:
        NotStored: there is no such savepoint, or it was never finished.
        SnapshotDamaged: its manifest cannot be trusted.
    """
    return load_manifest(store, layout.savepoint_folder(pipeline, savepoint))


def verify_savepoint(
    store: SnapshotStore, pipeline: str, savepoint: str, scratch: Path | None = None
) -> Verified:
    """Read every file of a savepoint and compare all of its checksums.

    Raises:
        NotStored: there is no such savepoint.
        SnapshotDamaged: its manifest cannot be trusted, so nothing says what the files should be.
    """
    manifest = show_savepoint(store, pipeline, savepoint)
    folder = layout.savepoint_folder(pipeline, savepoint)
    problems: list[str] = []
    with tempfile.TemporaryDirectory(dir=scratch, prefix="verify-") as work:
        shelf = Shelf(store, folder, Path(work))
        for file in manifest.files():
            try:
                fetch(shelf, file).discard()
            except SnapshotDamaged as error:
                problems.append(str(error))
                for left in Path(work).iterdir():
                    rmtree(left) if left.is_dir() else left.unlink()
    files = manifest.files()
    return Verified(len(files), sum(each.rows for each in files), sum(each.bytes for each in files), problems)


def delete_savepoint(store: SnapshotStore, pipeline: str, savepoint: str) -> int:
    """Remove a savepoint, finished or not, and tell how many files it had; from the first one on it is none any more."""
    folder = layout.savepoint_folder(pipeline, savepoint)
    entries = store.list(folder)
    if entries:
        store.delete(layout.manifest_file(folder))
    for entry in entries:
        store.delete(entry.name)
    return len(entries)


def _ids(store: SnapshotStore, pipeline: str, *, only_finished: bool) -> list[str]:
    found = set()
    for entry in store.list(layout.savepoints_folder(pipeline)):
        savepoint = layout.savepoint_in(pipeline, entry.name)
        if savepoint is None:
            continue
        manifest = layout.manifest_file(layout.savepoint_folder(pipeline, savepoint))
        if entry.name == manifest or not only_finished:
            found.add(savepoint)
    return sorted(found)
