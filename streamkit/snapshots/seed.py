"""Seed: the rows with which a new task begins, taken from the parts of a snapshot.

What a task takes is a walk over files in a fixed order, and within a file in the order of the keys. A chunk of it is
committed together with the cursor behind it; whoever takes the task over goes on there. Every file is fetched and checked
before the first row is handed out, so a damaged one is found before anything of it was written.
"""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from streamkit.errors import Bug, Misconfigured
from streamkit.graph.stage import Placement
from streamkit.snapshots.manifest import Manifest, Part, Role, RowsFile, StagePart
from streamkit.snapshots.rows_file import CheckedRows, Shelf, fetch
from streamkit.state.keys import store_ids
from streamkit.state.row_groups import (
    EVERY_GROUP,
    GROUP_BYTES,
    TIMER_GROUP_AT,
    TIMER_STORE_AT,
    GroupRange,
    Row,
    groups_of,
)


class ChunkSize(msgspec.Struct, frozen=True):
    """What one commit takes at most: quick to write, and small against the limits of a transaction.

    A row that is longer has a chunk of its own, or is the last of one.
    """

    rows: int = 20_000
    bytes: int = 8 * 1024 * 1024


CHUNK = ChunkSize()


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What a new task wants of one store: `graph/from_cut.py` says which may be had."""

    store: str
    # The stage of the snapshot that has it.
    origin: str
    # Among how many tasks its keys are shared now.
    tasks: int


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """How far a task has been seeded: behind this row."""

    # Of the manifest, the task and its claims: a cursor means nothing among other rows.
    digest: str
    path: str
    after: bytes

    def encode(self) -> bytes:
        """The bytes that a commit record keeps."""
        return _encode(self)

    @classmethod
    def decode(cls, data: bytes) -> "Cursor":
        """The cursor that `encode` wrote.

        Raises:
            Misconfigured: these bytes hold none.
        """
        try:
            return _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Misconfigured(
                "a commit record does not say how far its task was seeded",
                detail=str(error),
                hint="only streamkit may write to changelog topics: look at the ACLs; then begin the generation anew",
            ) from error


class Chunk(NamedTuple):
    """Rows to commit together with what follows them: the cursor, or None if these are the last."""

    rows: dict[bytes, bytes]
    cursor: Cursor | None


class Taking(NamedTuple):
    """What is taken of one file: by the id of its store, the rows of these groups."""

    file: RowsFile
    stores: Mapping[bytes, GroupRange]

    def groups(self) -> GroupRange:
        """All that has to be read."""
        ranges = self.stores.values()
        return GroupRange(min(each.first for each in ranges), max(each.last for each in ranges))


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Cursor).decode


def takings(manifest: Manifest, task: int, claims: Collection[Claim]) -> list[Taking]:
    """Which rows of which files a task begins with: the same list for the same claims, in whatever order.

    Raises:
        Bug: two claims are on the same store, or on one that the snapshot does not have so.
    """
    ids = store_ids(sorted(claim.store for claim in claims))
    found: list[Taking] = []
    for origin in sorted({claim.origin for claim in claims}):
        stage = manifest.stages.get(origin)
        mine = [claim for claim in claims if claim.origin == origin]
        for claim in mine:
            _require_there(stage, claim)
        if stage is not None:
            shares = {ids[claim.store]: (stage.stores[claim.store].placement, claim.tasks) for claim in mine}
            for part in sorted(stage.parts, key=lambda each: each.task):
                found += _of_part(part, task, shares)
    return found


def seed_chunks(
    manifest: Manifest,
    task: int,
    claims: Collection[Claim],
    shelf: Shelf,
    cursor: Cursor | None = None,
    *,
    at_most: ChunkSize = CHUNK,
) -> Iterator[Chunk]:
    """What a task commits, chunk by chunk, from the cursor on; the last chunk has no cursor, and may have no rows.

    What was fetched lies in the scratch folder, and is removed as it was read.

    Raises:
        SnapshotDamaged: a file is missing or not as it was written; before the first chunk.
        Misconfigured: the cursor is of another snapshot, or of other claims.
    """
    digest = _digest_of(manifest, task, claims)
    wanted = _behind(takings(manifest, task, claims), digest, cursor)
    checked = [fetch(shelf, taking.file) for taking in wanted]
    after = b"" if cursor is None else cursor.after
    rows: dict[bytes, bytes] = {}
    size = 0
    place = cursor
    for path, (key, value) in _walk(wanted, checked, after):
        if len(rows) >= at_most.rows or size >= at_most.bytes:
            yield Chunk(rows, place)
            rows, size = {}, 0
        rows[key] = value
        size += len(key) + len(value)
        if len(rows) >= at_most.rows or size >= at_most.bytes:
            place = Cursor(digest, path, key)
    yield Chunk(rows, None)


def _digest_of(manifest: Manifest, task: int, claims: Collection[Claim]) -> str:
    ordered = sorted(claims, key=lambda each: each.store)
    return hashlib.sha256(_encode([manifest.digest, task, ordered])).hexdigest()[:32]


def _require_there(stage: StagePart | None, claim: Claim) -> None:
    share = None if stage is None else stage.stores.get(claim.store)
    if share is None:
        raise Bug(
            f'a task claims store "{claim.store}" of stage "{claim.origin}", which the snapshot does not have'
        )
    if share.placement == "source" and share.tasks != claim.tasks:
        raise Bug(
            f'store "{claim.store}" lies by the {share.tasks} partitions of its source, and is claimed for {claim.tasks}'
        )


def _of_part(part: Part, task: int, shares: Mapping[bytes, tuple[Placement, int]]) -> Iterator[Taking]:
    for file in part.files:
        stores = {}
        for store, (placement, tasks) in shares.items():
            groups = groups_of(task, tasks) if placement == "groups" else EVERY_GROUP
            common = file.groups.common(groups)
            if common and (placement == "groups" or part.task == task):
                stores[store] = common
        if stores:
            yield Taking(file, stores)


def _behind(wanted: list[Taking], digest: str, cursor: Cursor | None) -> list[Taking]:
    """What is still to be read."""
    if cursor is None:
        return wanted
    paths = [taking.file.path for taking in wanted]
    if cursor.digest != digest or cursor.path not in paths:
        raise Misconfigured(
            "a task was seeded in part from another snapshot, or by another version of the pipeline",
            where=cursor.path,
            detail="where it stopped is not among what it would take now",
            hint="finish the start with the version and the snapshot that it was begun with, or begin a new one",
        )
    return wanted[paths.index(cursor.path) :]


def _walk(
    wanted: Sequence[Taking], checked: Sequence[CheckedRows], after: bytes
) -> Iterator[tuple[str, Row]]:
    for taking, found in zip(wanted, checked, strict=True):
        bounds = {store: groups.bounds for store, groups in taking.stores.items()}
        is_timer = taking.file.role is Role.TIMERS
        store_at, group_at = (TIMER_STORE_AT, TIMER_GROUP_AT) if is_timer else (GROUP_BYTES, 0)
        for row in found.rows(taking.groups(), after):
            key = row[0]
            own = bounds.get(key[store_at : store_at + 2])
            if own is not None and own[0] <= key[group_at : group_at + GROUP_BYTES] < own[1]:
                yield taking.file.path, row
        found.discard()
        after = b""
