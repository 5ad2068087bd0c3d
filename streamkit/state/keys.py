"""State keys: where an entry lives in a task's store, and under which key it stands in the changelog.

A value: key group (2 bytes), store id (2 bytes), key. A map's entry: key group, store id, length of the key as a
varint, key, map key; what belongs to a key and a window likewise, with the window's namespace as the map key. The
group comes first so that a change of the partition count moves whole ranges; the length keeps the entries of one key
together and apart from those of every other. Timers alone begin with their time (`state/timers.py`).
"""

from collections.abc import Iterable

from streamkit.errors import InvalidPipeline
from streamkit.model.keys import GroupPrefixes, murmur2
from streamkit.model.varint import read_uvarint, uvarint

# Where the key begins: behind its group and the store id.
KEY_AT = 4
# No key group begins like this: there are 1024 of them, so their first byte is at most 3.
RESERVED_PREFIX = b"\xff\xff"
# Nor like this.
TIMERS_PREFIX = b"\xfe"
COMMIT_KEY = RESERVED_PREFIX + b"commit"
PLAN_KEY = RESERVED_PREFIX + b"plan"


def store_id(name: str) -> bytes:
    """The two bytes that stand for a store in its keys: the same in every process and every release."""
    return (murmur2(name.encode()) & 0xFFFF).to_bytes(2, "big")


def store_ids(names: Iterable[str]) -> dict[str, bytes]:
    """The id of each store.

    Raises:
        InvalidPipeline: two stores have the same name, or names with the same id.
    """
    ids: dict[str, bytes] = {}
    owners: dict[bytes, str] = {}
    for name in names:
        if name in ids:
            raise InvalidPipeline(
                f'two stores are named "{name}"',
                hint="give one of them another name; a store's name decides where its state lives",
            )
        ids[name] = store_id(name)
        other = owners.setdefault(ids[name], name)
        if other != name:
            raise InvalidPipeline(
                f'stores "{other}" and "{name}" have the same id {ids[name].hex()}',
                detail="an id is 16 bits of the name's hash, and their entries would mix",
                hint=f'rename the newer of the two, for example to "{name}_2"; the older one has state to lose',
            )
    return ids


class StateKeys(dict[bytes, bytes]):
    """key -> state key of one value store, remembered: joining the parts again would cost more than packing a count.

    Whoever owns it empties it when it has grown too large.
    """

    def __init__(self, prefixes: GroupPrefixes, store: bytes) -> None:
        super().__init__()
        self._prefixes = prefixes
        self._store = store

    def __missing__(self, key: bytes) -> bytes:
        state_key = self[key] = self._prefixes[key] + self._store + key
        return state_key


class WindowKeys(dict[tuple[bytes, bytes], bytes]):
    """(key, namespace) -> state key of one window store, remembered as in `StateKeys`."""

    def __init__(self, prefixes: GroupPrefixes, store: bytes) -> None:
        super().__init__()
        self._prefixes = prefixes
        self._store = store

    def __missing__(self, place: tuple[bytes, bytes]) -> bytes:
        key, namespace = place
        state_key = self[place] = map_key_prefix(self._prefixes[key], self._store, key) + namespace
        return state_key


def split_map_key(state_key: bytes) -> tuple[bytes, bytes]:
    """The key and the map key (or namespace) of a state key that `map_key_prefix` begins."""
    length, at = read_uvarint(state_key, KEY_AT)
    return state_key[at : at + length], state_key[at + length :]


def map_key_prefix(group: bytes, store: bytes, key: bytes) -> bytes:
    """What the state keys of all entries of one key's map begin with; no other state key begins so."""
    return group + store + uvarint(len(key)) + key


def successor(prefix: bytes) -> bytes | None:
    """The first bytes after all that begin with `prefix`, or None if there are none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None
