"""Batches that are opened for readers, in a real broker whose records are in memory: in their order, off the loop."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tests.support.kafka_server import NOW_MS, running_kafka_server

from tidemill.broker.broker import BrokerNode
from tidemill.records import unread
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.compression import Codec
from tidemill.records.read import read_records
from tidemill.records.record import Record
from tidemill.scheduling import delivery
from tidemill.servers.grpc import partition_reads
from tidemill.servers.grpc.partition_reads import ReadPosition, read_partitions
from tidemill.streams.admission import OPENED_IN_PLACE_BYTES_MAX

pytestmark = pytest.mark.event_loop("uvloop")

BLOCKED_S = 5.0
TOPIC = "orders"


def batch_of(*values: bytes, codec: Codec = Codec.NONE) -> bytearray:
    return build_batch([NewRecord(None, value, timestamp=NOW_MS) for value in values], codec=codec)


COMPRESSED = batch_of(b"x", codec=Codec.ZSTD)
LARGE = batch_of(bytes(OPENED_IN_PLACE_BYTES_MAX + 1))


async def read_for_grpc(broker: BrokerNode) -> None:
    (found,) = await read_partitions(broker, [ReadPosition(TOPIC, 0, 0)], max_records=10, max_wait_ms=0)
    assert (found.error, found.next_offset, len(found.records)) == ("", 1, 1)


async def read_age_for_lag(broker: BrokerNode) -> None:
    found = await broker.view.partition(TOPIC, 0).reader.next_unread(0)
    assert found.age_s(NOW_MS + 2_000) == 2.0


async def read_marks_of_scheduled_records(broker: BrokerNode) -> None:
    assert await delivery._marks(broker.view.partition(TOPIC, 0), 0) == set()


@pytest.mark.parametrize("batch", [COMPRESSED, LARGE], ids=["compressed", "large"])
@pytest.mark.parametrize(
    ("module", "read"),
    [(partition_reads, read_for_grpc), (unread, read_age_for_lag), (delivery, read_marks_of_scheduled_records)],
)
async def test_the_event_loop_runs_while_a_batch_is_opened(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    read: Callable[[BrokerNode], Awaitable[None]],
    batch: bytearray,
) -> None:
    opening, served = threading.Event(), threading.Event()

    def slow(found: memoryview) -> Iterator[Record]:
        opening.set()
        assert served.wait(BLOCKED_S), "the event loop waits for the batch"
        return read_records(found)

    monkeypatch.setattr(module, "read_records", slow)

    async with running_kafka_server(tmp_path) as server:
        await server.broker.topics.create(TOPIC)
        await server.broker.view.partition(TOPIC, 0).leader.append(bytearray(batch), acks=-1)
        polling = asyncio.ensure_future(read(server.broker))
        await asyncio.to_thread(opening.wait, BLOCKED_S)
        served.set()
        await polling


async def test_records_keep_their_order_wherever_their_batches_are_opened(tmp_path: Path) -> None:
    large = bytes(OPENED_IN_PLACE_BYTES_MAX + 1)
    batches = [
        batch_of(b"0", b"1", codec=Codec.GZIP),
        batch_of(b"2"),
        batch_of(large, b"4"),
        batch_of(b"5"),
        batch_of(b"6", b"7", codec=Codec.ZSTD),
        batch_of(b"8", codec=Codec.LZ4),
    ]

    async with running_kafka_server(tmp_path) as server:
        await server.broker.topics.create(TOPIC)
        partition = server.broker.view.partition(TOPIC, 0)
        for batch in batches:
            await partition.leader.append(batch, acks=-1)
        (found,) = await read_partitions(server.broker, [ReadPosition(TOPIC, 0, 1)], max_records=100, max_wait_ms=0)
        assert [record.offset for record in found.records] == list(range(1, 9))
        assert found.next_offset == 9
        (found,) = await read_partitions(server.broker, [ReadPosition(TOPIC, 0, 0)], max_records=3, max_wait_ms=0)
        assert [record.offset for record in found.records] == [0, 1, 2]
        assert found.next_offset == 3
