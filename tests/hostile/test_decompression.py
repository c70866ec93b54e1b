"""Small batches that decompress to many bytes: truncated streams and bombs of every codec."""

import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cramjam
import pytest
from tests.hostile.attacked import AttackedBroker, attacked_broker
from tests.hostile.frames import Peer, request

from tidemill.records.build import NewRecord, build_batch
from tidemill.records.compression import Codec
from tidemill.records.header import ATTRIBUTES_AT, HEADER_SIZE, LENGTH_END, seal
from tidemill.records.incremental_compression import compress

CONNECTIONS = 32
REQUESTS = 40
BOMBING = 4
"""Connections whose batches take the largest size when they are opened; the others send truncated ones."""
TRUNCATED_BYTES = 63
MESSAGE_BYTES_MAX = 1_000_000
BOMB_BYTES = 64 * 1024 * 1024
TOPICS: dict[str, Any] = {
    "compacted": {"cleanup_policy": "compact"},
    "recompressing": {"compression_type": "uncompressed"},
    "scheduling": {"tidemill_schedule_enable": "true"},
}


def batch_with(codec: Codec, payload: bytes) -> bytes:
    """A batch of one record whose CRC is right, whatever the payload stands for."""
    template = build_batch([NewRecord(b"k", b"v", timestamp=1_700_000_000_000)])
    batch = bytearray(template[:HEADER_SIZE]) + payload
    batch[LENGTH_END - 4 : LENGTH_END] = (len(batch) - LENGTH_END).to_bytes(4, "big")
    batch[ATTRIBUTES_AT + 1] = codec
    seal(batch, 0, len(batch))
    return bytes(batch)


def payloads() -> Iterator[bytes]:
    zeros = bytes(BOMB_BYTES)
    whole = {
        Codec.GZIP: zlib.compress(zeros, 9, 31),
        Codec.SNAPPY: bytes(cramjam.snappy.compress_raw(zeros)),
        Codec.LZ4: compress(Codec.LZ4, zeros),
        Codec.ZSTD: compress(Codec.ZSTD, zeros),
    }
    for codec, stream in whole.items():
        yield batch_with(codec, stream[:TRUNCATED_BYTES])
        if len(stream) < MESSAGE_BYTES_MAX:
            yield batch_with(codec, stream)


BATCHES = tuple(payloads())
TRUNCATED = tuple(batch for batch in BATCHES if len(batch) == HEADER_SIZE + TRUNCATED_BYTES)


@pytest.fixture(scope="module")
def broker() -> Iterator[AttackedBroker]:
    with attacked_broker() as started:
        with Peer(started.address) as peer:
            for name, settings in TOPICS.items():
                started.create_topic(peer, name, **settings)
        yield started


def produce(topic: str, batch: bytes) -> bytes:
    topics = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
    return request(0, 9, {"acks": 1, "timeout": 30_000, "topic_data": topics})


def attack(broker: AttackedBroker, frames: list[bytes]) -> None:
    with Peer(broker.address) as peer:
        for each in frames:
            peer.send(each)
        for _ in frames:
            assert peer.receive() is not None


@pytest.mark.parametrize("topic", TOPICS)
def test_bombs_take_neither_the_memory_nor_the_time_of_others(broker: AttackedBroker, topic: str) -> None:
    bombs = [produce(topic, batch) for batch in BATCHES if batch not in TRUNCATED]
    truncated = [produce(topic, TRUNCATED[number % len(TRUNCATED)]) for number in range(REQUESTS)]
    rounds = [bombs if number < BOMBING else truncated for number in range(CONNECTIONS)]
    with broker.watched(), ThreadPoolExecutor(CONNECTIONS) as pool:
        for done in [pool.submit(attack, broker, each) for each in rounds]:
            done.result()
