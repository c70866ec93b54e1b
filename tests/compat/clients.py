"""Real Kafka clients behind one small interface, so that one scenario runs with each of them.

A client is used as an application would use it. The settings are those that a user would choose, not those that are
easiest for a broker.
"""

import asyncio
import json
import subprocess
from collections.abc import Sequence
from contextlib import closing
from typing import Any, NamedTuple, Protocol

WAIT_S = 60
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Sent(NamedTuple):
    """A record as the application sent it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp: int


class Seen(NamedTuple):
    """A record as the application received it."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp: int


class Client(Protocol):
    """The operations of a client that scenarios use."""

    name: str

    def create_topic(self, topic: str, partitions: int) -> None: ...

    def topics(self) -> set[str]: ...

    def delete_topic(self, topic: str) -> None: ...

    def produce(
        self, topic: str, partition: int, records: Sequence[Sent], *, codec: str = "none", idempotent: bool = False
    ) -> None: ...

    def consume(self, topic: str, partition: int, start: int, count: int) -> list[Seen]: ...

    def offsets(self, topic: str, partition: int) -> tuple[int, int]: ...

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None: ...


class Confluent:
    """confluent-kafka: librdkafka, which most Python applications use."""

    name = "confluent-kafka"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self._bootstrap})

    def create_topic(self, topic: str, partitions: int) -> None:
        from confluent_kafka.admin import NewTopic

        admin = self._admin()
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(WAIT_S)

    def topics(self) -> set[str]:
        return set(self._admin().list_topics(timeout=WAIT_S).topics)

    def delete_topic(self, topic: str) -> None:
        admin = self._admin()
        admin.delete_topics([topic])[topic].result(WAIT_S)

    def produce(
        self, topic: str, partition: int, records: Sequence[Sent], *, codec: str = "none", idempotent: bool = False
    ) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "compression.type": codec,
                "enable.idempotence": idempotent,
                "acks": "all",
                "linger.ms": 5,
                "queue.buffering.max.messages": 1_000_000,
            },
        )
        failed: list[Any] = []

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                failed.append(error)

        for record in records:
            producer.produce(
                topic,
                record.value,
                key=record.key,
                partition=partition,
                headers=list(record.headers),
                timestamp=record.timestamp,
                on_delivery=delivered,
            )
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0
        assert not failed, failed[:3]

    def _consumer(self) -> Any:
        from confluent_kafka import Consumer

        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "compat",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            },
        )

    def consume(self, topic: str, partition: int, start: int, count: int) -> list[Seen]:
        from confluent_kafka import TopicPartition

        consumer = self._consumer()
        consumer.assign([TopicPartition(topic, partition, start)])
        seen: list[Seen] = []
        try:
            while len(seen) < count:
                messages = consumer.consume(min(count - len(seen), 10_000), WAIT_S)
                assert messages, f"only {len(seen)} of {count}"
                for message in messages:
                    assert message.error() is None, message.error()
                    headers = tuple(message.headers() or ())
                    seen.append(Seen(message.offset(), message.key(), message.value(), headers, message.timestamp()[1]))
        finally:
            consumer.close()
        return seen

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        from confluent_kafka import TopicPartition

        consumer = self._consumer()
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), WAIT_S)
            return low, high
        finally:
            consumer.close()

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        from confluent_kafka import TopicPartition

        consumer = self._consumer()
        try:
            [found] = consumer.offsets_for_times([TopicPartition(topic, partition, timestamp)], WAIT_S)
        finally:
            consumer.close()
        return int(found.offset) if found.offset >= 0 else None


class KafkaPython:
    """kafka-python: pure Python, idempotent by default."""

    name = "kafka-python"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def _admin(self) -> Any:
        from kafka.admin import KafkaAdminClient

        return KafkaAdminClient(bootstrap_servers=self._bootstrap)

    def create_topic(self, topic: str, partitions: int) -> None:
        from kafka.admin import NewTopic

        with closing(self._admin()) as admin:
            admin.create_topics([NewTopic(topic, partitions, 1)])

    def topics(self) -> set[str]:
        with closing(self._admin()) as admin:
            return set(admin.list_topics())

    def delete_topic(self, topic: str) -> None:
        with closing(self._admin()) as admin:
            admin.delete_topics([topic])

    def produce(
        self, topic: str, partition: int, records: Sequence[Sent], *, codec: str = "none", idempotent: bool = False
    ) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=self._bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            acks="all",
            linger_ms=5,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    record.value,
                    key=record.key,
                    partition=partition,
                    headers=list(record.headers),
                    timestamp_ms=record.timestamp,
                )
                for record in records
            ]
            producer.flush(WAIT_S)
            for future in futures:
                future.get(WAIT_S)
        finally:
            producer.close(WAIT_S)

    def _consumer(self) -> Any:
        from kafka import KafkaConsumer

        return KafkaConsumer(bootstrap_servers=self._bootstrap, enable_auto_commit=False, auto_offset_reset="none")

    def consume(self, topic: str, partition: int, start: int, count: int) -> list[Seen]:
        from kafka import TopicPartition

        consumer = self._consumer()
        place = TopicPartition(topic, partition)
        consumer.assign([place])
        consumer.seek(place, start)
        seen: list[Seen] = []
        try:
            while len(seen) < count:
                polled = consumer.poll(WAIT_S * 1000, max_records=count - len(seen))
                assert polled, f"only {len(seen)} of {count}"
                seen += [
                    Seen(message.offset, message.key, message.value, tuple(message.headers), message.timestamp)
                    for message in polled[place]
                ]
        finally:
            consumer.close()
        return seen

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        from kafka import TopicPartition

        consumer = self._consumer()
        place = TopicPartition(topic, partition)
        try:
            return consumer.beginning_offsets([place])[place], consumer.end_offsets([place])[place]
        finally:
            consumer.close()

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        from kafka import TopicPartition

        consumer = self._consumer()
        place = TopicPartition(topic, partition)
        try:
            found = consumer.offsets_for_times({place: timestamp})[place]
        finally:
            consumer.close()
        return None if found is None else int(found.offset)


class Aiokafka:
    """aiokafka: asyncio, with old, inflexible protocol versions only."""

    name = "aiokafka"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def create_topic(self, topic: str, partitions: int) -> None:
        from aiokafka.admin import AIOKafkaAdminClient, NewTopic

        async def create() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
            await admin.start()
            try:
                await admin.create_topics([NewTopic(topic, partitions, 1)])
            finally:
                await admin.close()

        asyncio.run(create())

    def topics(self) -> set[str]:
        from aiokafka.admin import AIOKafkaAdminClient

        async def list_topics() -> set[str]:
            admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
            await admin.start()
            try:
                return set(await admin.list_topics())
            finally:
                await admin.close()

        return asyncio.run(list_topics())

    def delete_topic(self, topic: str) -> None:
        from aiokafka.admin import AIOKafkaAdminClient

        async def delete() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
            await admin.start()
            try:
                await admin.delete_topics([topic])
            finally:
                await admin.close()

        asyncio.run(delete())

    def produce(
        self, topic: str, partition: int, records: Sequence[Sent], *, codec: str = "none", idempotent: bool = False
    ) -> None:
        from aiokafka import AIOKafkaProducer

        async def send() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                acks="all",
                linger_ms=5,
            )
            await producer.start()
            try:
                futures = [
                    await producer.send(
                        topic,
                        record.value,
                        key=record.key,
                        partition=partition,
                        headers=list(record.headers),
                        timestamp_ms=record.timestamp,
                    )
                    for record in records
                ]
                await asyncio.wait_for(asyncio.gather(*futures), WAIT_S)
            finally:
                await producer.stop()

        asyncio.run(send())

    def _consumer(self) -> Any:
        from aiokafka import AIOKafkaConsumer

        return AIOKafkaConsumer(bootstrap_servers=self._bootstrap, enable_auto_commit=False, auto_offset_reset="none")

    def consume(self, topic: str, partition: int, start: int, count: int) -> list[Seen]:
        from aiokafka import TopicPartition

        async def read() -> list[Seen]:
            consumer = self._consumer()
            place = TopicPartition(topic, partition)
            await consumer.start()
            try:
                consumer.assign([place])
                consumer.seek(place, start)
                seen: list[Seen] = []
                while len(seen) < count:
                    polled = await consumer.getmany(place, timeout_ms=WAIT_S * 1000, max_records=count - len(seen))
                    assert polled, f"only {len(seen)} of {count}"
                    for message in polled[place]:
                        headers = tuple(message.headers)
                        seen.append(Seen(message.offset, message.key, message.value, headers, message.timestamp))
                return seen
            finally:
                await consumer.stop()

        return asyncio.run(read())

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        from aiokafka import TopicPartition

        async def ask() -> tuple[int, int]:
            consumer = self._consumer()
            place = TopicPartition(topic, partition)
            await consumer.start()
            try:
                low = await consumer.beginning_offsets([place])
                high = await consumer.end_offsets([place])
                return low[place], high[place]
            finally:
                await consumer.stop()

        return asyncio.run(ask())

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        from aiokafka import TopicPartition

        async def ask() -> int | None:
            consumer = self._consumer()
            place = TopicPartition(topic, partition)
            await consumer.start()
            try:
                found = (await consumer.offsets_for_times({place: timestamp}))[place]
                return None if found is None else int(found.offset)
            finally:
                await consumer.stop()

        return asyncio.run(ask())


class Kcat:
    """kcat with Debian's old librdkafka: no admin, text records. confluent-kafka does what kcat cannot do."""

    name = "kcat"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = Confluent(bootstrap)

    def _run(self, *arguments: str, text: bytes = b"") -> bytes:
        command = ["kcat", "-b", self._bootstrap, *arguments]
        return subprocess.run(command, input=text, capture_output=True, check=True, timeout=WAIT_S).stdout

    def create_topic(self, topic: str, partitions: int) -> None:
        self._admin.create_topic(topic, partitions)

    def topics(self) -> set[str]:
        return {topic["topic"] for topic in json.loads(self._run("-L", "-J"))["topics"]}

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topic(topic)

    def produce(
        self, topic: str, partition: int, records: Sequence[Sent], *, codec: str = "none", idempotent: bool = False
    ) -> None:
        """Produce with confluent-kafka where times, record headers or null values matter: kcat cannot set them."""
        plain = idempotent or codec != "none"
        if not plain:
            self._admin.produce(topic, partition, records, codec=codec, idempotent=idempotent)
            return
        text = b"".join((record.key or b"") + b"\x1f" + (record.value or b"") + b"\x1e" for record in records)
        settings = ["-X", f"enable.idempotence={str(idempotent).lower()}", "-z", codec]
        self._run("-P", "-t", topic, "-p", str(partition), "-D", "\x1e", "-K", "\x1f", *settings, text=text)

    def consume(self, topic: str, partition: int, start: int, count: int) -> list[Seen]:
        where = ["-t", topic, "-p", str(partition), "-o", str(start), "-c", str(count)]
        lines = self._run("-C", *where, "-q", "-J").splitlines()
        return [self._seen(json.loads(line)) for line in lines]

    @staticmethod
    def _seen(record: dict[str, Any]) -> Seen:
        headers = record.get("headers", [])
        return Seen(
            record["offset"],
            None if record["key"] is None else record["key"].encode(),
            None if record["payload"] is None else record["payload"].encode(),
            tuple((name, value.encode()) for name, value in zip(headers[::2], headers[1::2], strict=True)),
            record["ts"],
        )

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        return self._query(topic, partition, -2), self._query(topic, partition, -1)

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        found = self._query(topic, partition, timestamp)
        return found if found >= 0 else None

    def _query(self, topic: str, partition: int, timestamp: int) -> int:
        answer = self._run("-Q", "-t", f"{topic}:{partition}:{timestamp}").decode()
        return int(answer.rsplit("offset", 1)[1])


CLIENTS: tuple[type[Client], ...] = (Confluent, KafkaPython, Aiokafka, Kcat)
