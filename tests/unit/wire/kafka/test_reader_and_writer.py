"""Reader and writer against kio's own bytes, for every API and version that kio has and a broker may serve."""

import random
from typing import Any

import pytest
from kio.schema.index import api_key_map, schema_name_map
from tests.support.wire_samples import kio_bytes, sample

from tidemill.model.errors import ProtocolViolation
from tidemill.wire.kafka.reader import ITEMS_MAX, read_message
from tidemill.wire.kafka.schema import build, request_class, response_class
from tidemill.wire.kafka.writer import message_writer

# Everything between client and broker; what brokers say to each other is not ours.
KEYS = [0, 1, 2, 3, *range(8, 17), *range(18, 27), 28, 32, 33, 35, 37, *range(42, 48), 60, 61, 65, 66, 68, 69, 75]
PAIRS = [(key, version) for key in KEYS for version in schema_name_map[api_key_map[key]]]
SEEDS = (1, 2, 3)


@pytest.mark.parametrize("key", KEYS)
def test_answers_are_kios_bytes(key: int) -> None:
    for version in schema_name_map[api_key_map[key]]:
        for seed in SEEDS:
            message = sample(response_class(key, version), random.Random(seed))
            out = bytearray()
            message_writer(response_class(key, version))(out, message)
            assert out == kio_bytes(message), (version, seed)


@pytest.mark.parametrize("key", KEYS)
def test_requests_are_read_back_from_kios_bytes(key: int) -> None:
    for version in schema_name_map[api_key_map[key]]:
        for seed in SEEDS:
            message = sample(request_class(key, version), random.Random(seed))
            data = kio_bytes(message)
            assert read_message(request_class(key, version), data + b"junk behind") == (message, len(data))


@pytest.mark.parametrize("key", KEYS)
def test_a_cut_request_is_a_violation_and_never_anything_else(key: int) -> None:
    rng = random.Random(7)
    for version in schema_name_map[api_key_map[key]]:
        data = kio_bytes(sample(request_class(key, version), rng))
        for _ in range(20):
            cut = data[: rng.randrange(len(data))] if data else b""
            damaged = bytearray(cut)
            if damaged:
                damaged[rng.randrange(len(damaged))] = rng.choice((0, 0x7F, 0x80, 0xFF))
            for bad in (cut, bytes(damaged)):
                try:
                    read_message(request_class(key, version), bad)
                except ProtocolViolation:
                    continue


def test_numbers_may_stand_for_times_and_error_codes() -> None:
    heartbeat = response_class(12, 4)
    out = bytearray()
    message_writer(heartbeat)(out, heartbeat(throttle_time=5, error_code=27))
    assert out == bytes.fromhex("00000005 001b 00")


METADATA = request_class(3, 12)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff\x0f",  # 2^32 - 2 topics
        b"\xff\xff\xff\xff\xff\xff\x01",  # a varint of seven bytes
        b"\x80\x80\x04" + bytes(100),  # more topics than bytes
        b"\x00\x01\x00\xff\xff\xff\xff\x0f",  # 2^32 - 1 tagged fields
        b"\x00\x01\x00\x01\x05\xff\xff\x03",  # a tagged field longer than the frame
        b"\x00\x01\x00" + b"\x41" + b"\x07\x00" * 65,  # one tagged field more than allowed
        b"",
    ],
)
def test_hostile_counts_are_refused_before_anything_is_allocated(data: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        read_message(METADATA, data)


@pytest.mark.parametrize("count", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x80\x00\x00\x00"])
def test_hostile_counts_of_old_versions(count: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        read_message(request_class(3, 4), count + b"\x00")


@pytest.mark.parametrize(
    ("request_type", "data"),
    [
        (request_class(3, 4), "00000003 0000 0000"),  # a name takes two bytes
        (METADATA, "04 01 01 01 01"),  # an item takes 18 bytes: an id, an empty name and no tags
    ],
)
def test_a_count_that_the_rest_cannot_hold_is_rejected_before_the_first_item(request_type: Any, data: str) -> None:
    with pytest.raises(ProtocolViolation, match="an array has the invalid item count 3"):
        read_message(request_type, bytes.fromhex(data))


def test_the_items_of_a_request_are_counted_together() -> None:
    many = build(METADATA, {"topics": None})
    assert read_message(METADATA, kio_bytes(many))[0] == many
    groups = request_class(42, 0)
    data = kio_bytes(groups(groups_names=("",) * (ITEMS_MAX + 1)))
    with pytest.raises(ProtocolViolation, match="items"):
        read_message(groups, data)


def test_unknown_tagged_fields_are_skipped() -> None:
    request, end = read_message(METADATA, b"\x00\x01\x00" + b"\x02" + b"\x63\x03abc" + b"\x64\x00" + b"rest")
    assert (request.topics, request.allow_auto_topic_creation, end) == (None, True, 11)


def test_null_where_the_protocol_has_none() -> None:
    with pytest.raises(ProtocolViolation, match="null"):
        read_message(request_class(12, 4), b"\x00" + bytes(20))
    with pytest.raises(ProtocolViolation, match="null"):
        read_message(request_class(16, 4), b"\x02\x00\x00")  # one state, and that one null
