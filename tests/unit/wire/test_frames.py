"""Clients that take Kafka's door for another one."""

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
        (b"POST /api/sql HTTP/1.1\r\n", "the client speaks HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "a frame announces 1397966893 bytes$"),
        (b"\xff\xff\xff\xff", "a frame announces -1 bytes$"),
    ],
)
def test_what_a_stranger_speaks_is_told(said: bytes, line: str) -> None:
    room = memoryview(bytearray(1024))
    reader = FrameReader(room, 100 << 20)
    reader.space()[: len(said)] = said
    with pytest.raises(ProtocolViolation, match=line):
        reader.received(len(said))
