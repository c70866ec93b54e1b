"""The largest requests that a broker accepts: every array of a request is filled, based on kio's schema.

`wide` makes many outer structures with one item in each of their arrays. Otherwise one outer structure has all items.
In equal parts, names are of existing topics, of missing topics, and repeated.
"""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, NamedTuple
from uuid import UUID

from tidemill.wire.kafka.layout import Slot, layout_of
from tidemill.wire.kafka.schema import request_class

TOPIC_FIELDS = frozenset({"topic", "name", "topic_name", "topic_names", "resource_name", "subscribed_topic_names"})
TOPIC_RESOURCE = 2
FIXED_VALUES: dict[str, Any] = {
    "acks": -1,
    "allow_auto_topic_creation": False,
    "committed_metadata": "",
    "current_leader_epoch": -1,
    "cursor": None,
    "group_id": "large",
    "member_epoch": 0,
    "num_partitions": 1,
    "count": 2,
    "partition_max_bytes": 1000,
    "max_bytes": 1000,
    "protocol_type": "consumer",
    "rebalance_timeout": 60_000,
    "records": None,
    "replica_id": -1,
    "replication_factor": 1,
    "resource_type": TOPIC_RESOURCE,
    "response_partition_limit": 2000,
    "server_assignor": None,
    "session_timeout": 30_000,
    "subscribed_topic_regex": None,
    "timeout": 30_000,
    "timestamp": -1,
    "topic_regex": None,
    "transactional_id": "large",
    "validate_only": False,
    "value": "1",
}
ZEROS = {"bool": False, "string": "", "bytes": b"", "uuid": None, "float64": 0.0}


class Names(NamedTuple):
    """The existing topics that requests name, with their ids."""

    topics: Sequence[str]
    ids: Sequence[UUID]


class _Filler:
    def __init__(self, names: Names, *, wide: bool, unknown: bool) -> None:
        self._names = names
        self._wide = wide
        self._unknown = unknown
        self._numbers = count()

    def message(self, kind: Any, items: int) -> dict[str, Any]:
        slots = [*layout_of(kind).slots, *layout_of(kind).tagged]
        arrays = [slot for slot in slots if slot.array]
        share = items // max(1, len(arrays))
        number = next(self._numbers)
        fields = {slot.name: self._value(slot, number) for slot in slots if not slot.array and not slot.struct}
        fields |= {slot.name: tuple(self._items(slot, share)) for slot in arrays}
        return {name: value for name, value in fields.items() if value is not ...}

    def _items(self, slot: Slot, items: int) -> Iterator[Any]:
        if not slot.struct:
            yield from (self._value(slot, number) for number in range(items))
            return
        inner = sum(each.array for each in layout_of(slot.struct).slots)
        structs = items if not inner else items // (1 + inner) if self._wide else min(items, 1)
        for _ in range(structs):
            yield self.message(slot.struct, inner if self._wide else items - 1)

    def _value(self, slot: Slot, number: int) -> Any:
        if slot.kind == "float64":
            return 1.0
        if slot.name in FIXED_VALUES:
            return FIXED_VALUES[slot.name]
        if slot.tag is not None:
            return ...
        if slot.kind == "uuid":
            known = not self._unknown and number % 3 == 0
            return self._names.ids[number % len(self._names.ids)] if known else UUID(int=number + 1)
        if slot.kind == "string":
            return self._name(slot.name, number)
        if slot.kind in {"int8", "int16"}:
            return 0
        if slot.kind.startswith("int"):
            return number
        return ZEROS.get(slot.kind, 0)

    def _name(self, field: str, number: int) -> str:
        if field in TOPIC_FIELDS and not self._unknown and number % 3 == 0:
            return self._names.topics[number % len(self._names.topics)]
        return f"{field[:8]}-{number // 3 * 3 if number % 3 == 2 else number}"


def largest(key: int, version: int, items: int, names: Names, *, wide: bool, unknown: bool = False) -> dict[str, Any]:
    """The fields of a request with this many array items. `unknown` names nothing that exists."""
    return _Filler(names, wide=wide, unknown=unknown).message(request_class(key, version), items)


def has_arrays(key: int, version: int) -> bool:
    """Whether a request has an array."""
    layout = layout_of(request_class(key, version))
    return any(slot.array for slot in (*layout.slots, *layout.tagged))
