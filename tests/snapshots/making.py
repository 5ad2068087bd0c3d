"""Snapshots for tests: the state of some tasks, made by the cells of every kind, and a manifest over it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from streamkit.graph.stage import Placement
from streamkit.model.ids import TaskId
from streamkit.model.keys import shuffle_partition
from streamkit.snapshots.export import FILE_BYTES, export_rows
from streamkit.snapshots.layout import savepoint_folder
from streamkit.snapshots.manifest import Kind, Manifest, Part, StagePart, StoreShare, TaskTime
from streamkit.snapshots.manifest_file import store_manifest
from streamkit.snapshots.rows_file import Shelf
from streamkit.snapshots.store import SnapshotStore
from streamkit.state.keys import COMMIT_KEY, PLAN_KEY
from streamkit.state.kinds import KINDS
from streamkit.state.spec import StoreSpec
from streamkit.state.store import StateStore, StateStores
from streamkit.state.task_state import TaskState

PIPELINE = "shop"
SAVEPOINT = "before-release-7"
SPECS = {kind: StoreSpec(f"totals.{kind}", kind, int, str) for kind in KINDS}
STORES = frozenset(spec.name for spec in SPECS.values())


def fill(state: TaskState, keys: Iterable[bytes]) -> None:
    """Have state of every kind for each of these keys."""
    cells = {kind: state.cells(spec) for kind, spec in SPECS.items()}
    for key in keys:
        size = len(key)
        cells["value"].put(key, size)
        cells["window"].put((key, b"monday"), size)
        cells["window"].put((key, b""), size)
        cells["map"].put(key, "red", 1)
        cells["map"].put(key, "green", 2)
        cells["list"].extend(key, range(size % 3))
        cells["event_timers"].add(key, size * 1000 - 2000, b"monday")
        cells["processing_timers"].add(key, 17)


def new_tasks(
    stores: StateStores,
    keys: Sequence[bytes],
    tasks: int,
    owner: Callable[[bytes, int], int] = shuffle_partition,
) -> list[StateStore]:
    """The stores of a stage with so many tasks that has seen these keys."""
    made = []
    for number in range(tasks):
        state = TaskState(stores.open(f"totals-{number}"), list(SPECS.values()))
        fill(state, (key for key in keys if owner(key, tasks) == number))
        rows = state.freeze()
        rows[COMMIT_KEY], rows[PLAN_KEY] = b"commit of %d" % number, b"plan"
        state.committed(rows, len(rows))
        state.write_pending()
        made.append(state.store)
    return made


def rows_of(tasks: Iterable[StateStore]) -> dict[bytes, bytes]:
    """All rows that belong to a group, and no others."""
    return {key: value for task in tasks for key, value in task.scan(b"") if not key.startswith(b"\xff")}


@contextmanager
def work_folder() -> Iterator[Path]:
    """A folder in memory where there is one: files of rows are opened by the hundred, and a disk takes 0.1 s for each."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def shelf_in(store: SnapshotStore, scratch: Path, savepoint: str = SAVEPOINT) -> Shelf:
    scratch.mkdir(exist_ok=True)
    return Shelf(store, savepoint_folder(PIPELINE, savepoint), scratch)


def export_stage(
    shelf: Shelf,
    tasks: Sequence[StateStore],
    *,
    stage: str = "totals",
    placement: Placement = "groups",
    shares: Mapping[str, StoreShare] | None = None,
    times: Mapping[int, TaskTime] | None = None,
    file_bytes: int = FILE_BYTES,
) -> StagePart:
    parts = []
    stores = dict(shares or dict.fromkeys(STORES, StoreShare(placement=placement, tasks=len(tasks))))
    for number, task in enumerate(tasks):
        owned = {name: share.groups(number) for name, share in stores.items()}
        files = export_rows(task, owned, TaskId(stage, number), shelf, file_bytes=file_bytes)
        time = (times or {}).get(number, TaskTime())
        parts.append(Part(task=number, span=number, time=time, files=files))
    return StagePart(placement=placement, tasks=len(tasks), stores=stores, parts=tuple(parts))


def manifest_of(stages: Mapping[str, StagePart], **others: Any) -> Manifest:
    return Manifest(
        **(
            {
                "kind": Kind.SAVEPOINT,
                "id": SAVEPOINT,
                "pipeline": PIPELINE,
                "generation": 1,
                "cut": 1,
                "at_ms": 1_700_000_000_000,
                "sources": {},
                "stages": dict(stages),
            }
            | others
        )
    )


def export_savepoint(shelf: Shelf, tasks: Sequence[StateStore], *, file_bytes: int = FILE_BYTES) -> Manifest:
    """A finished savepoint of one stage."""
    return store_manifest(
        shelf.store, shelf.folder, manifest_of({"totals": export_stage(shelf, tasks, file_bytes=file_bytes)})
    )
