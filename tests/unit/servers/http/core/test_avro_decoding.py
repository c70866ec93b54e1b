"""Avro data: every type, and data that lies about its size."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.servers.http.core.avro_decoding import DEPTH_MAX, AvroSchema, UndecodablePayload

POINT = {"type": "record", "name": "Point", "namespace": "geo", "fields": [{"name": "x", "type": "int"}]}


def long(number: int) -> bytes:
    raw = (number << 1) ^ (number >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


@pytest.mark.parametrize(
    ("schema", "data", "value"),
    [
        ("null", b"", None),
        ("boolean", b"\x01", True),
        ("int", long(-7), -7),
        ("long", long(2**62), 2**62),
        ("float", b"\x00\x00\x80\x3f", 1.0),
        ("double", b"\x00\x00\x00\x00\x00\x00\xf0\x3f", 1.0),
        ("string", long(2) + b"hi", "hi"),
        ("bytes", long(2) + b"hi", "hi"),
        ("bytes", long(1) + b"\xff", "/w=="),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", "ab"),
        ({"type": "fixed", "name": "F", "size": 0}, b"", ""),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, long(1), "B"),
        ({"type": "array", "items": "int"}, long(2) + long(1) + long(2) + long(0), [1, 2]),
        ({"type": "array", "items": "int"}, long(-1) + long(1) + long(5) + long(0), [5]),
        ({"type": "map", "values": "int"}, long(1) + long(1) + b"k" + long(3) + long(0), {"k": 3}),
        (["null", "string"], long(1) + long(1) + b"a", "a"),
        ({"type": "long", "logicalType": "timestamp-millis"}, long(5), 5),
        (POINT, long(4), {"x": 4}),
    ],
)
def test_types(schema: object, data: bytes, value: object) -> None:
    assert AvroSchema(schema).decode(data) == value


def test_named_types_are_found_by_short_and_full_name() -> None:
    fields = [{"name": "a", "type": POINT}, {"name": "b", "type": "geo.Point"}, {"name": "c", "type": ["null", "Line"]}]
    schema = AvroSchema({"type": "record", "name": "Line", "fields": fields})
    assert schema.decode(long(1) + long(2) + long(0)) == {"a": {"x": 1}, "b": {"x": 2}, "c": None}


@pytest.mark.parametrize(
    ("schema", "data", "reason"),
    [
        ({"type": "array", "items": "null"}, long(2**40), "more than 100000 values"),
        (
            {"type": "array", "items": {"type": "array", "items": "null"}},
            long(9) + (long(30_000) + long(0)) * 4,
            "more than",
        ),
        ("string", long(2**40), "ends too early"),
        ("string", long(-1), "a length is not valid"),
        ("long", b"\xff" * 11, "more than 64 bits"),
        ("int", b"", "ends too early"),
        ("int", b"\x02\x02", "1 bytes follow"),
        (["null"], long(3), "which the schema does not have"),
        ("Unknown", b"", "does not have the type 'Unknown'"),
        ({"type": "enum", "name": "E", "symbols": 3}, long(0), "which the schema does not have"),
    ],
)
def test_data_that_is_refused(schema: object, data: bytes, reason: str) -> None:
    with pytest.raises(UndecodablePayload, match=reason):
        AvroSchema(schema).decode(data)


def test_a_type_that_contains_itself_is_bounded() -> None:
    schema = AvroSchema({"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]})
    with pytest.raises(UndecodablePayload, match="nested more than"):
        schema.decode(b"")


def test_data_may_be_nested_as_deep_as_the_limit() -> None:
    schema: object = "int"
    value: object = 7
    for _ in range(DEPTH_MAX):
        schema, value = {"type": "record", "name": "R", "fields": [{"name": "r", "type": schema}]}, {"r": value}
    assert AvroSchema(schema).decode(long(7)) == value
    with pytest.raises(UndecodablePayload, match="nested more than"):
        AvroSchema({"type": "record", "name": "R", "fields": [{"name": "r", "type": schema}]})


def test_a_list_of_records_may_be_as_long_as_the_limit() -> None:
    """Each link is a field, a branch of a union and a name: three steps deeper."""
    links = DEPTH_MAX // 3
    schema = AvroSchema({"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]})
    value: object = {"r": None}
    for _ in range(links):
        value = {"r": value}
    assert schema.decode(long(1) * links + long(0)) == value
    with pytest.raises(UndecodablePayload, match="nested more than"):
        schema.decode(long(1) * (links + 1) + long(0))


@pytest.mark.parametrize(("kind", "values"), [("array", "items"), ("map", "values")])
def test_collections_may_be_nested_as_deep_as_the_limit(kind: str, values: str) -> None:
    schema, data, value = "int", long(7), 7
    made: object = schema
    expected: object = value
    for _ in range(DEPTH_MAX):
        made = {"type": kind, values: made}
        data = long(1) + (long(1) + b"k" if kind == "map" else b"") + data + long(0)
        expected = {"k": expected} if kind == "map" else [expected]
    assert AvroSchema(made).decode(data) == expected


def test_a_deep_schema_is_refused() -> None:
    schema: object = "int"
    for _ in range(200):
        schema = {"type": "array", "items": schema}
    with pytest.raises(UndecodablePayload, match="nested more than"):
        AvroSchema(schema)


@given(st.binary(max_size=60))
def test_any_data_is_decoded_or_refused(data: bytes) -> None:
    fields = [{"name": "p", "type": ["null", POINT]}, {"name": "l", "type": {"type": "array", "items": "geo.Point"}}]
    with suppress(UndecodablePayload):
        AvroSchema({"type": "record", "name": "R", "fields": fields}).decode(data)
