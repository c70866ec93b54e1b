"""Protobuf data without its schema."""

from contextlib import suppress
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from hypothesis import given
from hypothesis import strategies as st

from tidemill.servers.http.core.avro_decoding import UndecodablePayload
from tidemill.servers.http.core.protobuf_fields import ProtobufFields, after_message_indexes


def test_fields_of_a_real_message() -> None:
    message = FieldDescriptorProto(name="total", number=3, json_name="t", proto3_optional=True)
    assert ProtobufFields().read(message.SerializeToString()) == {"1": "total", "3": 3, "10": "t", "17": 1}


def test_repeated_fields_messages_and_bytes() -> None:
    data = b"\x08\x01\x08\x02\x1a\x02\x08\x07\x22\x02\xff\xff\x2d\x01\x00\x00\x00\x31\x02\x00\x00\x00\x00\x00\x00\x00"
    assert ProtobufFields().read(data) == {"1": [1, 2], "3": {"1": 7}, "4": "ffff", "5": 1, "6": 2}


@pytest.mark.parametrize("data", [b"\x08", b"\x0a\x05a", b"\x00\x01", b"\x0b", b"\x08" + b"\xff" * 11])
def test_data_that_is_refused(data: bytes) -> None:
    with pytest.raises(UndecodablePayload):
        ProtobufFields().read(data)


def test_fields_are_bounded() -> None:
    assert ProtobufFields().read(b"\x08\x01" * 10_000) == {"1": [1] * 10_000}
    with pytest.raises(UndecodablePayload, match="more than 10000 fields"):
        ProtobufFields().read(b"\x08\x01" * 10_001)
    with pytest.raises(UndecodablePayload, match="more than 10000 fields"):
        ProtobufFields().read(b"\x08\x01" * 20_000)


def test_indexes_of_the_message_type() -> None:
    assert after_message_indexes(b"\x00\x08\x01") == b"\x08\x01"
    assert after_message_indexes(b"\x04\x02\x00\x08\x01") == b"\x08\x01"
    with pytest.raises(UndecodablePayload):
        after_message_indexes(b"\xfe\x7f")


@given(st.binary(max_size=80))
def test_any_data_is_decoded_or_refused(data: bytes) -> None:
    with suppress(UndecodablePayload):
        ProtobufFields().read(data)


def test_messages_may_be_nested_twenty_deep() -> None:
    data = b"\x08\x01"
    for _ in range(20):
        data = b"\x0a" + bytes([len(data)]) + data
    found: Any = ProtobufFields().read(data)
    for _ in range(20):
        [found] = found.values()
    assert found == {"1": 1}
    found = ProtobufFields().read(b"\x0a" + bytes([len(data)]) + data)
    for _ in range(21):
        [found] = found.values()
    assert found == "0801", "what is deeper is shown as bytes"
