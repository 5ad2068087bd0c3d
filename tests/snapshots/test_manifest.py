import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streamkit.errors import Misconfigured, SnapshotDamaged
from streamkit.model.ids import MAX_TIME, MIN_TIME
from streamkit.progress.channels import Status
from streamkit.snapshots.manifest import (
    ChangelogEnd,
    Kind,
    Manifest,
    Part,
    Role,
    RowsFile,
    SourcePartition,
    SourceTime,
    StagePart,
    StoreShare,
    TaskTime,
)
from streamkit.snapshots.manifest_file import (
    contradictions,
    decode_manifest,
    encode_manifest,
    load_manifest,
    store_manifest,
)
from streamkit.snapshots.memory import MemorySnapshots
from streamkit.snapshots.store import AlreadyStored, NotStored
from streamkit.state.row_groups import GroupRange

GOLDEN = Path(__file__).parent / "golden" / "manifest-1.json"


def rows_file(name: str, first: int, last: int, role: Role = Role.VALUES) -> RowsFile:
    return RowsFile(
        role=role,
        path=f"parts/totals/{name}",
        groups=GroupRange(first, last),
        rows=3,
        bytes=4,
        sha256="a" * 64,
        rows_sha256="b" * 64,
    )


def full_manifest() -> Manifest:
    """One in which every field says something."""
    reads = StagePart(
        placement="source",
        tasks=2,
        stores={"dedupe": StoreShare(placement="source", tasks=2)},
        parts=(
            Part(
                task=0,
                span=41,
                time=TaskTime(watermark=1_699_999_999_000, advanced_at_ms=1_700_000_000_001),
            ),
            Part(
                task=1,
                span=9,
                time=TaskTime(announced=(Status.FINISHED, MAX_TIME), watermark=MAX_TIME),
            ),
        ),
    )
    totals = StagePart(
        placement="groups",
        tasks=3,
        stores={
            "totals": StoreShare(placement="groups", tasks=2),
            "totals.timers": StoreShare(placement="groups", tasks=2),
        },
        channels={"totals": [(1_699_999_999_000, Status.ACTIVE), (MAX_TIME, Status.FINISHED)]},
        parts=(
            Part(
                task=0,
                span=7,
                changelog=ChangelogEnd(topic="shop.totals.changelog", partition=0, offset=12, birth="b1"),
                time=TaskTime(watermark=5, announced=(Status.IDLE, 5), counts={"totals.late": 2}),
                files=(
                    rows_file("0/a.sst", 0, 99),
                    rows_file("0/b.sst", 99, 511),
                    rows_file("0/c.sst", 1, 500, Role.TIMERS),
                ),
            ),
            Part(task=1, files=(rows_file("1/a.sst", 512, 512),)),
            Part(task=2),
        ),
        operator_state={"totals": {"union": [1, 2]}},
    )
    time = SourceTime(highest=7, watermark=6, status=Status.IDLE, generator=b"\x81\xa1a\x01", end=100)
    return Manifest(
        kind=Kind.SAVEPOINT,
        id="before-release-7",
        pipeline="shop",
        generation=1,
        cut=12,
        at_ms=1_700_000_000_000,
        drained=False,
        plan={"stages": {"totals": {"stores": {"totals": {"kind": "value", "type": "int", "version": 1}}}}},
        fingerprint="0123456789abcdef",
        sources={
            "orders": {
                0: SourcePartition(position=99, at_ms=1_699_999_999_999, time=time),
                1: SourcePartition(position=0, time=SourceTime()),
            },
            "größe": {0: SourcePartition(position=2**62)},
        },
        stages={"reads": reads, "totals": totals},
    )


def test_what_was_written_is_read_back() -> None:
    data = encode_manifest(full_manifest())
    manifest = decode_manifest(data, "here")
    assert msgspec.structs.replace(manifest, digest="") == full_manifest()
    assert manifest.digest
    assert encode_manifest(manifest) == data
    assert manifest.sources["orders"][0].time is not None
    assert SourceTime.of(manifest.sources["orders"][0].time.state()) == manifest.sources["orders"][0].time


def test_a_manifest_of_format_1_can_be_read_for_ever() -> None:
    """Never change the file: add one for each format to come."""
    manifest = decode_manifest(GOLDEN.read_bytes(), str(GOLDEN))
    assert msgspec.structs.replace(manifest, digest="") == full_manifest()


def test_the_layout_of_a_file_does_not_matter() -> None:
    content = json.loads(encode_manifest(full_manifest()))
    turned = json.dumps(dict(reversed(content.items())), indent=4).encode()
    assert decode_manifest(turned, "here") == decode_manifest(encode_manifest(full_manifest()), "here")


def rewritten(**changes: Any) -> bytes:
    """The file of a release that has other fields, with a digest that is right."""
    content = json.loads(encode_manifest(full_manifest()))
    content |= changes
    del content["digest"]
    encoded = msgspec.json.Encoder(order="sorted").encode(content)
    return msgspec.json.encode(content | {"digest": hashlib.sha256(encoded).hexdigest()})


def test_fields_of_a_newer_release_are_skipped() -> None:
    manifest = decode_manifest(rewritten(weather="fine"), "here")
    assert msgspec.structs.replace(manifest, digest="") == full_manifest()


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"format": 2}, "format 2"), ({"requires": ["weather"], "weather": "fine"}, 'understands "weather"')],
)
def test_what_must_not_be_overlooked_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(Misconfigured, match="newer release") as caught:
        decode_manifest(rewritten(**changes), "here")
    assert not isinstance(caught.value, SnapshotDamaged)
    assert words in caught.value.detail
    assert caught.value.hint


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'"x"',
        b"{}",
        b'{"format": "1"}',
        b"\xff\xfe",
        b'{"format": 1}',
        b'{"format":1,"digest":7}',
    ],
)
def test_what_is_no_manifest_is_told(data: bytes) -> None:
    with pytest.raises(SnapshotDamaged, match="manifest of a snapshot is damaged") as caught:
        decode_manifest(data, "shop/manifest.json")
    assert caught.value.where == "shop/manifest.json"
    assert caught.value.hint


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "picture"},
        {"at_ms": "now"},
        {"stages": {"totals": {}}},
        {"generation": -1},
        {"sources": None},
    ],
)
def test_a_field_that_cannot_be_is_told(changes: dict[str, Any]) -> None:
    with pytest.raises(SnapshotDamaged, match="damaged"):
        decode_manifest(rewritten(**changes), "here")


def test_every_changed_bit_is_noticed() -> None:
    data = encode_manifest(full_manifest())
    right = decode_manifest(data, "here")
    for at in range(len(data)):
        for bit in range(0, 8, 3 if at % 5 else 1):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            try:
                found = decode_manifest(bytes(changed), "here")
            except Misconfigured:
                continue
            assert found == right


def stage(*parts: Part, tasks: int | None = None, **shares: StoreShare) -> StagePart:
    return StagePart(placement="groups", tasks=tasks or len(parts), stores=shares, parts=parts)


def part(task: int, *files: RowsFile) -> Part:
    return Part(task=task, files=files)


ONE, TWO = StoreShare(placement="groups", tasks=1), StoreShare(placement="groups", tasks=2)
SOURCE = StoreShare(placement="source", tasks=2)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (stage(part(0), tasks=2), "its parts are of [0]"),
        (stage(part(0), part(0)), "its parts are of [0, 0]"),
        (stage(part(1), part(2)), "its parts are of [1, 2]"),
        (stage(part(0), a=TWO), 'store "a" was shared among 2 tasks of 1'),
        (stage(part(0, rows_file("a", 500, 512)), part(1), a=TWO), "groups 500-512 that task 0 did not own"),
        (stage(part(0), part(1, rows_file("a", 511, 512)), a=TWO), "groups 511-512 that task 1 did not own"),
        (stage(part(0), part(1, rows_file("a", 0, 1)), a=ONE), "that task 1 did not own"),
        (stage(part(0, rows_file("a", 0, 1))), "did not own"),
        (stage(part(0, rows_file("a", 9, 1024)), part(1), a=SOURCE), "did not own"),
        (stage(part(0, rows_file("a", -1, 3)), part(1), a=SOURCE), "did not own"),
        (stage(part(0, rows_file("a", 9, 8)), a=ONE), "did not own"),
        (stage(part(0, rows_file("a", 0, 1), rows_file("a", 2, 3)), a=ONE), "twice"),
        (stage(part(0, rows_file("a", 5, 9), rows_file("b", 2, 3)), a=ONE), "in the order"),
        (stage(part(0, rows_file("../../x", 0, 1)), a=ONE), "not among its parts"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(wrong: StagePart, words: str) -> None:
    manifest = msgspec.structs.replace(full_manifest(), stages={"totals": wrong})
    assert any(words in each for each in contradictions(manifest))
    with pytest.raises(SnapshotDamaged):
        decode_manifest(encode_manifest(manifest), "here")
    store = MemorySnapshots()
    with pytest.raises(SnapshotDamaged):
        store_manifest(store, "a", manifest)
    assert store.contents == {}


def test_a_snapshot_of_other_key_groups_is_refused() -> None:
    manifest = msgspec.structs.replace(full_manifest(), key_groups=512)
    assert list(contradictions(manifest)) == ["it has 512 key groups, and there are always 1024"]
    assert list(contradictions(full_manifest())) == []


@pytest.fixture
def store() -> MemorySnapshots:
    """One with files of the right sizes."""
    made = MemorySnapshots()
    for file in full_manifest().files():
        made.put(f"shop/savepoints/one/{file.path}", b"rows")
    return made


FOLDER = "shop/savepoints/one"


def test_a_manifest_is_written_once_and_the_same_one_again(store: MemorySnapshots) -> None:
    with pytest.raises(NotStored, match="there is no snapshot"):
        load_manifest(store, FOLDER)
    written = store_manifest(store, FOLDER, full_manifest())
    assert store_manifest(store, FOLDER, full_manifest()) == written == load_manifest(store, FOLDER)
    with pytest.raises(AlreadyStored):
        store_manifest(store, FOLDER, msgspec.structs.replace(full_manifest(), at_ms=5))
    assert load_manifest(store, FOLDER) == written


@pytest.mark.parametrize("content", [None, b"", b"row", b"rows!"])
def test_no_manifest_is_written_before_all_its_files(store: MemorySnapshots, content: bytes | None) -> None:
    path = full_manifest().files()[1].path
    if content is None:
        store.delete(f"{FOLDER}/{path}")
    else:
        store.put(f"{FOLDER}/{path}", content)
    with pytest.raises(SnapshotDamaged, match="damaged") as caught:
        store_manifest(store, FOLDER, full_manifest())
    assert path in caught.value.detail
    with pytest.raises(NotStored):
        load_manifest(store, FOLDER)


def test_ends_of_time_are_kept_exactly() -> None:
    time = decode_manifest(encode_manifest(full_manifest()), "here").stages["reads"].parts[1].time
    assert (time.watermark, TaskTime().watermark) == (MAX_TIME, MIN_TIME)
