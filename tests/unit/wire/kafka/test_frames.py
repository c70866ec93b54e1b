"""Clients that take Kafka's server for another one."""

import pytest

from tidemill.model.errors import ProtocolViolation
from tidemill.wire.kafka.frames import FrameReader


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (
            bytes.fromhex("16030100f8010000f403"),
            "a frame announces 369295616 bytes: the client speaks TLS, not Kafka's",
        ),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "the client speaks gRPC"),
        (b"GET / HTTP/1.1\r\n", "the client speaks HTTP"),
        (b"POST /api/v1/sql HTTP/1.1\r\n", "the client speaks HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "a frame announces 1397966893 bytes$"),
        (b"\xff\xff\xff\xff", "a frame announces -1 bytes$"),
    ],
)
def test_the_protocol_of_another_server_is_named(said: bytes, line: str) -> None:
    room = memoryview(bytearray(1024))
    reader = FrameReader(room, 100 << 20)
    reader.space()[: len(said)] = said
    with pytest.raises(ProtocolViolation, match=line):
        reader.received(len(said))


def feed(reader: FrameReader, data: bytes) -> list[bytearray]:
    """Give the reader the bytes, as much at a time as it has space for."""
    frames = []
    while data:
        space = reader.space()
        count = min(len(space), len(data))
        space[:count] = data[:count]
        frames += reader.received(count)
        data = data[count:]
    return frames


def test_the_memory_of_a_large_frame_grows_with_what_has_come() -> None:
    """A client that announces much and sends little does not take the memory of what it announced."""
    reader = FrameReader(memoryview(bytearray(1024)), 100 << 20)
    reader.eager_bytes = 4096
    size = 60_000
    body = bytes(range(250)) * (size // 250)
    assert feed(reader, size.to_bytes(4, "big")) == []
    held = [reader.partial_bytes]
    for start in range(0, size - 2000, 2000):
        assert feed(reader, body[start : start + 2000]) == []
        assert (reader.received_bytes, reader.partial_size) == (start + 2000, size)
        held.append(reader.partial_bytes)
        assert reader.partial_bytes <= max(4096, 2 * (start + 2000))
    assert (held[0], held[-1]) == (4096, size)
    assert feed(reader, body[size - 2000 :]) == [bytearray(body)]
    assert (reader.partial_bytes, reader.partial_size, reader.received_bytes) == (0, 0, 0)


def test_a_size_may_arrive_in_pieces_and_the_limit_is_allowed() -> None:
    reader = FrameReader(memoryview(bytearray(64)), 8)
    assert feed(reader, b"\0\0") == []
    assert reader.received_bytes == 2
    assert feed(reader, b"\0\x08abcdefgh" + b"\0\0\0\0" + b"\0\0\0\x02i") == [bytearray(b"abcdefgh"), bytearray()]
    assert feed(reader, b"j") == [bytearray(b"ij")]
    with pytest.raises(ProtocolViolation, match="a frame announces 9 bytes"):
        feed(reader, b"\0\0\0\x09")


def test_a_dropped_frame_holds_no_memory() -> None:
    reader = FrameReader(memoryview(bytearray(64)), 1000)
    feed(reader, b"\0\0\0\x64abc")
    reader.drop()
    assert (reader.partial_bytes, reader.partial_size) == (0, 0)
