"""librdkafka's own batches are read here, and batches built here are read by librdkafka.

A stub that answers five APIs stands between: it keeps what the producer sends and serves what a test gives it, byte for
byte, so that nothing but the batch code is tested.
"""

import contextlib
import io
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kio.schema.api_versions.v0 import response as api_versions
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11 import request as fetch_request
from kio.schema.fetch.v11 import response as fetch
from kio.schema.metadata.v4 import response as metadata
from kio.schema.produce.v7 import request as produce_request
from kio.schema.produce.v7 import response as produce
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32Timedelta

from tidemill.records.build import NewRecord, build_batch
from tidemill.records.compression import Codec
from tidemill.records.header import iter_headers
from tidemill.records.read import read_records
from tidemill.records.record import Record
from tidemill.records.validate import check_produced, recompress

TOPIC = "t"
NOW_MS = 1_700_000_000_000
WAIT_S = 30.0
# Each offered API with its only version; FindCoordinator is what librdkafka takes as the sign of lz4.
PRODUCE, FETCH, METADATA, FIND_COORDINATOR, API_VERSIONS = 0, 1, 3, 10, 18
VERSIONS = {PRODUCE: 7, FETCH: 11, METADATA: 4, FIND_COORDINATOR: 0, API_VERSIONS: 0}
UNSUPPORTED_VERSION, COORDINATOR_NOT_AVAILABLE = 35, 15
NO_WAIT: Any = i32Timedelta.parse(timedelta(0))


class Stub:
    """One broker with one partition."""

    def __init__(self, served: bytes = b"") -> None:
        self.received: list[bytes] = []
        self._served = served
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        self._serving: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join(WAIT_S)
        for connection in self._connections:
            with contextlib.suppress(OSError):  # the client may have left before
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._serving:
            thread.join(WAIT_S)

    def _accept(self) -> None:
        with contextlib.suppress(OSError), self._listener:
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                self._serving.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
                self._serving[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError), connection, connection.makefile("rb") as stream:
            while True:
                (size,) = struct.unpack(">i", _exactly(stream, 4))
                frame = _exactly(stream, size)
                key, version, correlation, client_size = struct.unpack_from(">hhih", frame)
                body = frame[10 + max(client_size, 0) :]
                answer = struct.pack(">i", correlation) + self._answer(key, version, body)
                connection.sendall(struct.pack(">i", len(answer)) + answer)

    def _answer(self, key: int, version: int, body: bytes) -> bytes:
        if version != VERSIONS[key]:  # only ApiVersions may be asked in another version
            return struct.pack(">hi", UNSUPPORTED_VERSION, 0)
        if key == FIND_COORDINATOR:
            return struct.pack(">hihi", COORDINATOR_NOT_AVAILABLE, -1, 0, -1)
        answers: dict[int, Callable[[bytes], Any]] = {
            PRODUCE: self._produce,
            FETCH: self._fetch,
            METADATA: self._metadata,
            API_VERSIONS: _versions,
        }
        answer = answers[key](body)
        buffer = io.BytesIO()
        entity_writer(type(answer))(buffer, answer)
        return buffer.getvalue()

    def _produce(self, body: bytes) -> Any:
        request: Any = entity_reader(produce_request.ProduceRequest)(body, 0)[0]
        self.received += [bytes(part.records) for topic in request.topic_data for part in topic.partition_data]
        part: Any = produce.PartitionProduceResponse
        topic: Any = produce.TopicProduceResponse
        answered = part(index=0, error_code=ErrorCode.none, base_offset=0)
        return produce.ProduceResponse(responses=(topic(name=TOPIC, partition_responses=(answered,)),))

    def _fetch(self, body: bytes) -> Any:
        request: Any = entity_reader(fetch_request.FetchRequest)(body, 0)[0]
        (asked,) = [part for topic in request.topics for part in topic.partitions] or (None,)
        records = self._served if asked is not None and asked.fetch_offset == 0 else b""
        part: Any = fetch.PartitionData
        topic: Any = fetch.FetchableTopicResponse
        answer: Any = fetch.FetchResponse
        data = part(
            partition_index=0,
            error_code=ErrorCode.none,
            high_watermark=10**6,
            last_stable_offset=10**6,
            log_start_offset=0,
            aborted_transactions=(),
            preferred_read_replica=-1,
            records=records,
        )
        return answer(
            throttle_time=NO_WAIT,
            error_code=ErrorCode.none,
            session_id=0,
            responses=(topic(topic=TOPIC, partitions=(data,)),),
        )

    def _metadata(self, _body: bytes) -> Any:
        broker: Any = metadata.MetadataResponseBroker
        topic: Any = metadata.MetadataResponseTopic
        part: Any = metadata.MetadataResponsePartition
        answer: Any = metadata.MetadataResponse
        only = part(error_code=ErrorCode.none, partition_index=0, leader_id=1, replica_nodes=(1,), isr_nodes=(1,))
        return answer(
            throttle_time=NO_WAIT,
            brokers=(broker(node_id=1, host="127.0.0.1", port=self.port),),
            cluster_id="stub",
            controller_id=1,
            topics=(topic(error_code=ErrorCode.none, name=TOPIC, partitions=(only,)),),
        )


def _versions(_body: bytes) -> Any:
    entry: Any = api_versions.ApiVersion
    keys = tuple(
        entry(api_key=key, min_version=0 if key == API_VERSIONS else version, max_version=version)
        for key, version in VERSIONS.items()
    )
    return api_versions.ApiVersionsResponse(error_code=ErrorCode.none, api_keys=keys)


def _exactly(stream: io.BufferedReader, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


@contextlib.contextmanager
def stub(served: bytes = b"") -> Iterator[Stub]:
    running = Stub(served)
    try:
        yield running
    finally:
        running.close()


def sample(count: int) -> list[NewRecord]:
    """Records of all shapes; librdkafka wants names for headers."""
    return [
        NewRecord(
            None if i % 5 == 0 else b"key-%d" % i,
            None if i % 7 == 3 else b"value %d " % i * (i % 40),
            (("h", b"x" * i), ("null", None), ("", b"")) if i % 3 == 0 else (),
            NOW_MS + (i * 37) % 1000,
        )
        for i in range(count)
    ]


def placed(records: list[NewRecord]) -> list[Record]:
    return [Record(i, r.timestamp, r.key, r.value, r.headers) for i, r in enumerate(records)]


@pytest.mark.parametrize("codec", Codec)
def test_batches_of_librdkafka_are_read(codec: Codec) -> None:
    records = sample(300)
    with stub() as broker:
        producer = Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{broker.port}",
                "compression.type": codec.name.lower(),
                "linger.ms": 200,
                "log_level": 0,
            }
        )
        for key, value, headers, timestamp in records:
            producer.produce(TOPIC, value, key, 0, timestamp=timestamp, headers=list(headers))
        assert producer.flush(WAIT_S) == 0
        batches = list(broker.received)
    found: list[Record] = []
    for batch in batches:
        header = check_produced(batch, version=VERSIONS[PRODUCE])
        found += [record._replace(offset=len(found) + record.offset) for record in read_records(batch)]
        assert [at for at, _ in iter_headers(batch)] == [0]
        assert list(read_records(recompress(bytearray(batch), Codec.ZSTD))) == list(read_records(batch))
        assert header.codec in {codec, Codec.NONE}  # it does not compress what would grow
    assert found == placed(records)
    assert codec in {check_produced(batch, version=7).codec for batch in batches}


@pytest.mark.parametrize("codec", Codec)
def test_librdkafka_reads_what_is_built(codec: Codec) -> None:
    records = sample(300)
    with stub(bytes(build_batch(records, codec=codec))) as broker:
        consumer = Consumer(
            {
                "bootstrap.servers": f"127.0.0.1:{broker.port}",
                "group.id": "g",
                "enable.auto.commit": False,
                "check.crcs": True,
                "log_level": 0,
            }
        )
        try:
            consumer.assign([TopicPartition(TOPIC, 0, 0)])
            messages: list[Any] = []
            while len(messages) < len(records):
                got = consumer.consume(len(records) - len(messages), WAIT_S)
                assert got, "librdkafka delivered no more records"
                messages += got
        finally:
            consumer.close()
    assert [message.error() for message in messages] == [None] * len(records)
    assert [
        Record(m.offset(), m.timestamp()[1], m.key(), m.value(), tuple(m.headers() or ())) for m in messages
    ] == placed(records)
