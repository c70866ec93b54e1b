"""Headers of requests in Kafka's bytes: client ids up to their length, and tagged fields up to their number."""

from struct import pack

import pytest

from tidemill.model.errors import ProtocolViolation
from tidemill.wire.kafka.reader import skip_tags
from tidemill.wire.kafka.requests import Header, read_header


def frame(size: int, rest: bytes) -> bytes:
    return pack(">hhih", 3, 9, 77, size) + rest


@pytest.mark.parametrize(
    ("size", "rest", "client_id", "body"),
    [
        (-1, b"", "", 10),  # null
        (0, b"", "", 10),
        (3, b"app", "app", 13),
        (2, b"app", "ap", 12),
        (2, "ü".encode(), "ü", 12),
    ],
)
def test_a_client_id_is_as_long_as_the_header_says(size: int, rest: bytes, client_id: str, body: int) -> None:
    assert read_header(frame(size, rest), flexible=False) == Header(3, 9, 77, client_id, body)
    assert read_header(frame(size, rest[: max(size, 0)] + b"\x00"), flexible=True).body == body + 1


@pytest.mark.parametrize(("size", "rest"), [(-2, b""), (-32_768, b"app"), (1, b""), (4, b"app"), (1, b"\xff")])
def test_a_client_id_of_another_length_is_refused(size: int, rest: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        read_header(frame(size, rest), flexible=False)


def test_a_message_has_at_most_64_tagged_fields() -> None:
    field = b"\x07\x02ab"
    assert skip_tags(b"\x40" + 64 * field, 0) == 1 + 64 * len(field)
    with pytest.raises(ProtocolViolation, match="the number of tagged fields, 65, is invalid"):
        skip_tags(b"\x41" + 65 * field, 0)
