"""How keys and values are shown."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.servers.http.core.avro_decoding import AvroSchema
from tidemill.servers.http.core.payload_views import PayloadViews, RegisteredSchema, is_text, schema_id_of
from tidemill.servers.http.core.record_condition import MISSING
from tidemill.servers.http.core.record_filter import JSON_BYTES_MAX
from tidemill.wire.http.records import PayloadFormat

AVRO, PROTOBUF, SILENT = 1, 2, 3
SCHEMAS = {
    AVRO: RegisteredSchema(
        "AVRO", AvroSchema({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
    ),
    PROTOBUF: RegisteredSchema("PROTOBUF"),
    SILENT: RegisteredSchema("", problem="the schema registry does not answer"),
    4: RegisteredSchema("JSON"),
}
VIEWS = PayloadViews(SCHEMAS.get, chars=30)


def registered(schema_id: int, data: bytes) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + data


@pytest.mark.parametrize(
    ("payload", "shown", "text"),
    [
        (None, "null", ""),
        (b"", "text", ""),
        ("héllo\n".encode(), "text", "héllo\n"),
        (b'{ "a" : 1 }', "json", '{"a":1}'),
        (b"[1", "text", "[1"),
        (b"42", "text", "42"),
        (b"\x00\xff", "hex", "00 ff"),
        ("\u202egnp.exe".encode(), "hex", "e2 80 ae 67 6e 70 2e 65 78 65"),
        (registered(AVRO, b"\x0e"), "avro", '{"a":7}'),
        (registered(PROTOBUF, b"\x00\x08\x07"), "protobuf", '{"1":7}'),
        (registered(4, b'{"b":2}'), "json", '{"b":2}'),
        (registered(9, b"\x0e"), "hex", "00 00 00 00 09 0e"),
    ],
)
def test_formats_are_guessed(payload: bytes | None, shown: str, text: str) -> None:
    found = VIEWS.view(payload)
    assert (found.format, found.text, found.bytes, found.cut) == (shown, text, len(payload or b""), False)


def test_a_schema_that_does_not_decode_it_is_noted() -> None:
    found = VIEWS.view(registered(AVRO, b""))
    assert (found.format, found.schema_id) == ("hex", AVRO)
    assert found.note == "schema 1 does not decode it: the data ends too early"
    assert VIEWS.view(registered(SILENT, b"")).note.endswith("the schema registry does not answer")
    unknown = VIEWS.view(registered(9, b"\x0e"), "avro")
    assert (unknown.format, unknown.schema_id) == ("hex", None)
    assert unknown.note == "no registry knows its schema; set tidemill.registry.url"


def test_long_payloads_are_cut() -> None:
    assert VIEWS.view(b"x" * 100) == msgspec.structs.replace(VIEWS.view(b"x" * 30), bytes=100, cut=True)
    assert (VIEWS.view(b"\xff" * 100).text, VIEWS.view(b"\xff" * 100).cut) == ("ff " * 9 + "ff", True)
    part = VIEWS.view(b'{"a": "' + b"x" * 20, size=1_000)
    assert (part.format, part.bytes, part.cut) == ("text", 1_000, True)


def test_a_payload_that_just_fits_is_not_cut() -> None:
    assert (VIEWS.view(b"x" * 30).text, VIEWS.view(b"x" * 30).cut) == ("x" * 30, False)
    assert VIEWS.view(b"x" * 31).cut
    assert VIEWS.view(b"\xff" * 10).text == "ff " * 9 + "ff"
    assert not VIEWS.view(b"\xff" * 10).cut
    assert VIEWS.view(b"\xff" * 11).cut
    largest = registered(4, b"{}".ljust(JSON_BYTES_MAX - 5))
    assert VIEWS.json_of(largest) == {}
    assert VIEWS.json_of(largest + b" ") is MISSING


def test_json_on_several_lines() -> None:
    assert PayloadViews(SCHEMAS.get, chars=99, is_pretty=True).view(b'{"a":[1]}').text == '{\n  "a": [\n    1\n  ]\n}'


def test_large_numbers_keep_their_digits() -> None:
    number = b'{"a":123456789012345678901234}'
    assert PayloadViews(SCHEMAS.get, chars=99).view(number).text == number.decode()


def test_wanted_formats() -> None:
    assert VIEWS.view(b'{"a":1}', "text").text == '{"a":1}'
    assert VIEWS.view(b"ab", "hex").text == "61 62"
    assert VIEWS.view(b"ab", "base64").text == "YWI="
    assert VIEWS.view(b"{", "json").note == "it is not JSON"
    assert VIEWS.view(b"\x08\x07", "protobuf").text == '{"1":7}'
    assert "tidemill.registry.url" in VIEWS.view(b"\x08\x07", "avro").note
    assert VIEWS.view(registered(AVRO, b"\x0e"), "avro").format == "avro"


def test_documents_for_conditions() -> None:
    assert VIEWS.json_of(registered(AVRO, b"\x0e")) == {"a": 7}
    assert VIEWS.json_of(registered(AVRO, b"")) is MISSING
    assert VIEWS.json_of(b'{"a":1}') == {"a": 1}
    assert VIEWS.json_of(None) is MISSING


def test_text_may_end_inside_a_character() -> None:
    cut = "aé".encode()[:-1]
    assert is_text(cut, is_whole=False)
    assert not is_text(cut)
    assert schema_id_of(b"\x00\x00\x00\x00") is None


formats: list[PayloadFormat] = ["auto", "json", "text", "hex", "base64", "avro", "protobuf"]


@given(st.binary(max_size=80), st.sampled_from(formats))
def test_any_payload_has_a_view(payload: bytes, wanted: PayloadFormat) -> None:
    found = VIEWS.view(payload, wanted)
    assert len(found.text) <= 30
    msgspec.json.encode(found)
