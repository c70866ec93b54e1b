"""The fewest bytes of a field: the counts of arrays are checked against them, so one byte too many refuses requests."""

from struct import calcsize

import pytest
from tests.support.wire_samples import kio_bytes

from tidemill.wire.kafka.layout import FIXED, SIZES, Slot, bytes_min, item_bytes_min, layout_of
from tidemill.wire.kafka.schema import build, request_class

STRING = Slot("name", "string", None, array=False, nullable=True, tag=None, default=None)


def test_sizes_are_those_that_struct_packs() -> None:
    assert {kind: SIZES[kind] for kind in FIXED} == {kind: calcsize(f">{code}") for kind, code in FIXED.items()}
    assert {kind: SIZES[kind] for kind in sorted(set(SIZES) - set(FIXED))} == {
        "datetime_i64": 8,
        "timedelta_i32": 4,
        "timedelta_i64": 8,
        "uuid": 16,
    }


@pytest.mark.parametrize(("flexible", "string", "array"), [(False, 2, 4), (True, 1, 1)])
def test_a_sized_field_takes_at_least_its_length(flexible: bool, string: int, array: int) -> None:
    assert bytes_min(STRING, flexible=flexible) == item_bytes_min(STRING, flexible=flexible) == string
    assert bytes_min(STRING._replace(array=True), flexible=flexible) == array
    for kind in ("bytes", "records"):
        assert bytes_min(STRING._replace(kind=kind), flexible=flexible) == array


@pytest.mark.parametrize(("key", "version"), [(3, 1), (3, 9), (18, 3), (19, 2), (19, 5)])
def test_the_smallest_message_takes_the_fewest_bytes(key: int, version: int) -> None:
    message = request_class(key, version)
    layout = layout_of(message)
    empty = {slot.name: () if slot.array else slot.default for slot in layout.slots}
    assert len(kio_bytes(build(message, empty))) == layout.bytes_min
