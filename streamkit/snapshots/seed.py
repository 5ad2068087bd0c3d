"""Seed: the rows with which a new task begins, taken from the parts of a snapshot.

What a task takes is a walk over files in a fixed order, and within a file in the order of the keys. A chunk of it is
committed together with the cursor behind it; whoever takes the task over goes on there. Every file is fetched and checked
before the first row is handed out, so a damaged one is found before anything of it was written.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import msgspec

from streamkit.errors import Bug, Misconfigured
from streamkit.snapshots.manifest import Manifest, Placement, Role, RowsFile
from streamkit.snapshots.rows_file import CheckedRows, Shelf, fetch
from streamkit.state.keys import store_ids
from streamkit.state.row_groups import EVERY_GROUP, GROUP_BYTES, TIMER_STORE_AT, GroupRange, Row, groups_of

# What one commit takes at most: quick to write, and small against the limits of a transaction.
CHUNK_ROWS = 20_000
CHUNK_BYTES = 8 * 1024 * 1024


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What one new task wants of one stage of a snapshot."""

    # As it is called in the snapshot.
    stage: str
    stores: frozenset[str]
    partition: int
    # How many the shuffle has that places the new stage's state; without meaning where placement is by source.
    partitions: int


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """How far a task has been seeded: behind this row."""

    # Of the manifest: a cursor means nothing in another snapshot.
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
    """What is taken of one file: the rows of these groups and stores."""

    file: RowsFile
    groups: GroupRange
    stores: frozenset[bytes]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Cursor).decode


def takings(manifest: Manifest, claims: Collection[Claim]) -> list[Taking]:
    """Which rows of which files a task begins with: the same list for the same claims, in whatever order.

    Raises:
        Bug: two claims are on the same stage, or on one that the snapshot does not have.
    """
    if len({claim.stage for claim in claims}) < len(claims):
        raise Bug("a task claims one stage of a snapshot twice")
    return [
        taking
        for claim in sorted(claims, key=lambda each: each.stage)
        for taking in _of_claim(manifest, claim)
    ]


def seed_chunks(
    manifest: Manifest,
    claims: Collection[Claim],
    shelf: Shelf,
    cursor: Cursor | None = None,
    *,
    rows_max: int = CHUNK_ROWS,
    bytes_max: int = CHUNK_BYTES,
) -> Iterator[Chunk]:
    """What to commit, chunk by chunk, from the cursor on; the last chunk has no cursor, and may have no rows.

    What was fetched lies in the scratch folder, and is removed as it was read.

    Raises:
        SnapshotDamaged: a file is missing or not as it was written; before the first chunk.
        Misconfigured: the cursor is of another snapshot, or of other claims.
    """
    wanted = _behind(takings(manifest, claims), manifest.digest, cursor)
    checked = [fetch(shelf, taking.file) for taking in wanted]
    after = b"" if cursor is None else cursor.after
    rows: dict[bytes, bytes] = {}
    size = 0
    place = cursor
    for path, (key, value) in _walk(wanted, checked, after):
        if len(rows) >= rows_max or size >= bytes_max:
            yield Chunk(rows, place)
            rows, size = {}, 0
        rows[key] = value
        size += len(key) + len(value)
        if len(rows) >= rows_max or size >= bytes_max:
            place = Cursor(manifest.digest, path, key)
    yield Chunk(rows, None)


def _of_claim(manifest: Manifest, claim: Claim) -> Iterator[Taking]:
    stage = manifest.stages.get(claim.stage)
    if stage is None:
        raise Bug(f'a task claims stage "{claim.stage}", which the snapshot does not have')
    is_grouped = stage.placement is Placement.GROUPS
    groups = groups_of(claim.partition, claim.partitions) if is_grouped else EVERY_GROUP
    stores = frozenset(store_ids(sorted(claim.stores)).values())
    for part in sorted(stage.parts, key=lambda each: each.task):
        if not is_grouped and part.task != claim.partition:
            continue
        for file in part.files:
            common = file.groups.common(groups)
            if common and stores:
                yield Taking(file, common, stores)


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
        stores = taking.stores
        at = TIMER_STORE_AT if taking.file.role is Role.TIMERS else GROUP_BYTES
        for row in found.rows(taking.groups, after):
            if row[0][at : at + 2] in stores:
                yield taking.file.path, row
        found.discard()
        after = b""
