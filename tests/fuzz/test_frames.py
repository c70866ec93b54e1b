"""Random frames: the connection is closed or gets a response, and the broker serves the next client."""

import asyncio
import contextlib
import random
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs
from tests.support.kafka_server import RawClient, body_of, frame, running_kafka_server
from tests.support.wire_samples import kio_bytes, sample

from tidemill.model.errors import ProtocolViolation
from tidemill.servers.kafka.api_table import standard_table
from tidemill.servers.kafka.listener import KafkaServer
from tidemill.wire.kafka.frames import FrameReader
from tidemill.wire.kafka.requests import is_flexible, peek, read_body, read_header
from tidemill.wire.kafka.schema import request_class

pytestmark = pytest.mark.event_loop("uvloop")

APIS = {api.key: api for api in standard_table().listed()}
PAIRS = [
    (api.key, version)
    for api in APIS.values()
    for version in range(max(api.versions[0], api.served_from), api.versions[1] + 1)
]
FRAME_MAX = 1 << 20
DAMAGES = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\x0f", b"\xfe", b"\x00")


def read(data: bytes) -> None:
    """What the server does with a frame before a handler sees it."""
    key, version = peek(data)
    api = APIS.get(key)
    if api is None or not api.serves(version):
        raise ProtocolViolation
    header = read_header(data, flexible=is_flexible(key, version))
    if api.read is not None:
        api.read(bytearray(data), header.body, version)
    else:
        read_body(header, data)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_a_request_or_a_violation(data: bytes) -> None:
    for key, version in ((3, 12), (0, 9), (1, 17), (11, 9), (9, 8)):
        head = struct.pack(">hhih", key, version, 1, 0)
        for attempt in (data, head + data, head + b"\0" + data):
            try:
                read(attempt)
            except ProtocolViolation:
                continue


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=20), st.lists(st.integers(1, 700), min_size=1), st.integers(1, 64))
def test_frames_are_found_however_they_are_cut(frames: list[bytes], cuts: list[int], scratch: int) -> None:
    stream = b"".join(struct.pack(">i", len(each)) + each for each in frames)
    reader = FrameReader(memoryview(bytearray(scratch)), FRAME_MAX)
    found: list[bytes] = []
    position, turn = 0, 0
    while position < len(stream):
        space = reader.space()
        piece = stream[position : position + min(len(space), cuts[turn % len(cuts)])]
        space[: len(piece)] = piece
        del space
        found += map(bytes, reader.received(len(piece)))
        position += len(piece)
        turn += 1
    assert found == frames
    assert reader.partial_bytes == 0


@pytest.mark.parametrize("key", sorted(APIS))
async def test_damaged_requests_of_every_api(tmp_path: Path, key: int) -> None:
    """Valid requests with counts and lengths overwritten, sent to a real server."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    pairs = [pair for pair in PAIRS if pair[0] == key]

    def attempt() -> bytes:
        _, version = rng.choice(pairs)
        body = bytearray(kio_bytes(sample(request_class(key, version), rng)))[:4000]
        for _ in range(rng.randrange(1, 4)):
            damage = rng.choice(DAMAGES)
            at = rng.randrange(len(body) + 1)
            body[at : at + len(damage)] = damage
        return frame(key, version, 1, bytes(body[: rng.randrange(len(body) + 1)] if rng.random() < 0.3 else body))

    with capture_logs() as logs:
        async with running_kafka_server(tmp_path, {"auto.create.topics.enable": "false"}) as server:
            for _ in range(12):
                await survive(server, attempt())
    assert [each for each in logs if each["log_level"] == "error"] == []


async def survive(server: KafkaServer, data: bytes) -> None:
    client = await RawClient.connect(server)
    client.writer.write(data)
    client.writer.write_eof()
    async with asyncio.timeout(60):
        with contextlib.suppress(ConnectionError):
            await client.reader.read()
    await client.close()
    honest = await RawClient.connect(server)
    await honest.ask(18, 0)
    await honest.close()


async def test_noise_on_the_socket(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)

    async with running_kafka_server(tmp_path) as server:
        for _ in range(60):
            size = rng.choice((1, 3, 4, 5, 100, 70_000))
            noise = rng.randbytes(size)
            if rng.random() < 0.5:
                noise = struct.pack(">i", rng.choice((size, size + 5, 10, 14))) + noise
            await survive(server, noise)


async def test_a_flood_of_tags_and_a_flood_of_items(tmp_path: Path) -> None:
    tags = b"\x80\x94\xeb\xdc\x03" + b"\x07\x00" * 2_000_000  # a billion tagged fields, two million of them there
    head = struct.pack(">hhih", 18, 3, 1, 0)
    flood = struct.pack(">i", len(head) + len(tags)) + head + tags
    names = frame(42, 2, 1, b"\x81\x89\x7a" + b"\x01" * 2_000_000)  # two million empty names

    async with running_kafka_server(tmp_path) as server:
        await survive(server, flood)
        await survive(server, names)
        await survive(server, frame(18, 3, 1, body_of(18, 3, {})))
