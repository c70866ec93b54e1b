"""A Kafka server with a real broker whose records are in memory, and a client that sends bytes."""

import asyncio
import io
import struct
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import uvloop
from kio.serial import entity_reader, entity_writer

from tidemill.app.broker_wiring import make_broker
from tidemill.broker.broker import BrokerEnvironment
from tidemill.broker.topic_directories import MemoryTopics
from tidemill.cluster.local import LocalCoordination
from tidemill.model.broker_settings import parse
from tidemill.records.build import NewRecord, build_batch
from tidemill.servers.kafka.api_table import ApiTable
from tidemill.servers.kafka.listener import KafkaServer
from tidemill.streams.memory import MemoryLogStore
from tidemill.wire.kafka.schema import build, request_class, response_class

HOST = "127.0.0.1"
LIMIT_S = 30.0
NOW_MS = 1_700_000_000_000


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


@asynccontextmanager
async def running_kafka_server(
    folder: Path, settings: dict[str, str] | None = None, router: ApiTable | None = None
) -> AsyncIterator[KafkaServer]:
    """A broker and its Kafka server on a free port."""
    coordination = await LocalCoordination.open(folder)
    world = BrokerEnvironment(coordination, MemoryTopics(MemoryLogStore, clock_ms), clock_ms, uuid.uuid4)
    broker = make_broker(world, parse({"group.initial.rebalance.delay.ms": "0", **(settings or {})}))
    await broker.start()
    server = KafkaServer(router)
    await server.start(broker, HOST, 0)
    broker.view.advertise(*server.address)
    try:
        yield server
    finally:
        await server.close()
        await broker.stop()
        await coordination.close()


@contextmanager
def server_in_thread(folder: Path, settings: dict[str, str] | None = None) -> Iterator[KafkaServer]:
    """The same in a thread of its own, for blocking clients."""
    ready = threading.Event()
    found: list[KafkaServer] = []
    stops: list[Callable[[], object]] = []
    failures: list[BaseException] = []

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with running_kafka_server(folder, settings) as server:
            found.append(server)
            stops.append(lambda: loop.call_soon_threadsafe(stop.set))
            ready.set()
            await stop.wait()

    def run() -> None:
        try:
            uvloop.run(serve())
        except BaseException as error:  # noqa: BLE001 - raised in the test below
            failures.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="kafka server")
    thread.start()
    ready.wait(LIMIT_S)
    try:
        if failures:
            raise failures[0]
        yield found[0]
    finally:
        for stop in stops:
            stop()
        thread.join(LIMIT_S)
        assert not thread.is_alive()


class RawClient:
    """A connection that a test controls byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._correlation = 0

    @classmethod
    async def connect(cls, server: KafkaServer) -> "RawClient":
        return cls(*await asyncio.open_connection(*server.address))

    async def ask(self, key: int, version: int, /, **fields: Any) -> Any:
        correlation = self.send(key, version, **fields)
        return await self.answer(key, version, correlation)

    def send(self, key: int, version: int, /, **fields: Any) -> int:
        self._correlation += 1
        self.writer.write(frame(key, version, self._correlation, body_of(key, version, fields)))
        return self._correlation

    async def answer(self, key: int, version: int, correlation: int) -> Any:
        data = await self.frame()
        kind = response_class(key, version)
        assert struct.unpack_from(">i", data)[0] == correlation
        tags = kind.__flexible__ and key != 18
        assert not tags or data[4] == 0
        value, size = entity_reader(kind)(data, 4 + tags)
        assert size == len(data) - 4 - tags
        return value

    async def frame(self) -> bytes:
        async with asyncio.timeout(LIMIT_S):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(size)

    async def ended(self) -> bool:
        """Whether the server closes the connection."""
        async with asyncio.timeout(LIMIT_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            return


def body_of(key: int, version: int, fields: dict[str, Any]) -> bytes:
    kind = request_class(key, version)
    with io.BytesIO() as out:
        entity_writer(kind)(out, build(kind, fields))
        return out.getvalue()


def frame(key: int, version: int, correlation: int, body: bytes, client_id: bytes = b"test") -> bytes:
    flexible = request_class(key, version).__flexible__
    head = struct.pack(">hhih", key, version, correlation, len(client_id)) + client_id + (b"\0" if flexible else b"")
    return struct.pack(">i", len(head) + len(body)) + head + body


def request_part(key: int, version: int, kind: str, /, **fields: Any) -> Any:
    """A structure inside a request, by kio's name."""
    import sys

    return build(getattr(sys.modules[request_class(key, version).__module__], kind), fields)


def batch(*values: bytes, key: bytes | None = b"k", **options: Any) -> bytes:
    records = [NewRecord(key, value, timestamp=clock_ms()) for value in values]
    return bytes(build_batch(records, **options))


def produce_fields(version: int, topic: Any, partition: int, records: bytes | None, acks: int = -1) -> dict[str, Any]:
    part = request_part(0, version, "PartitionProduceData", index=partition, records=records)
    entry = request_part(0, version, "TopicProduceData", name=topic, topic_id=topic, partition_data=(part,))
    return {"acks": acks, "timeout": 1000, "topic_data": (entry,)} | {"timeout": _ms(1000)}


def fetch_fields(
    version: int, topic: Any, partitions: dict[int, int], *, max_wait_ms: int = 0, min_bytes: int = 1, **more: Any
) -> dict[str, Any]:
    parts = tuple(
        request_part(1, version, "FetchPartition", partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in partitions.items()
    )
    entry = request_part(1, version, "FetchTopic", topic=topic, topic_id=topic, partitions=parts)
    fields = {"replica_id": -1, "max_wait": _ms(max_wait_ms), "min_bytes": min_bytes, "max_bytes": 1 << 25}
    return fields | {"session_epoch": -1, "topics": (entry,)} | more


def _ms(count: int) -> Any:
    from datetime import timedelta

    return timedelta(milliseconds=count)
