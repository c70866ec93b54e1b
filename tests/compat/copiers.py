"""The copy loop (consume, transform, produce in one transaction), as an application writes it with each client.

A copier reads records from one topic, writes a copy of each to the same partition of another, and commits its input
offsets in the same transaction. Some transactions are aborted on purpose. After an abort, as after every error, it
returns to the committed offsets. It ends when all of its input is committed.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

WAIT_S = 60
TAKE = 25
ABORTS = 0.25
SESSION_MS = 10_000
RECONNECT_MS = 500
"""kafka-python waits longer after every failed attempt, up to 30 s by default. A killed broker restarts faster."""


class Job(NamedTuple):
    """A copy job: its topics and its limits."""

    bootstrap: str
    source: str
    target: str
    name: str
    total: int
    random: Random
    progress: Callable[[int], None]

    def aborts(self) -> bool:
        return self.random.random() < ABORTS


def copy_with_confluent(job: Job) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": job.bootstrap,
            "group.id": job.name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": SESSION_MS,
        },
    )
    consumer.subscribe([job.source])

    def rewind() -> int:
        places = consumer.committed(consumer.assignment(), WAIT_S)
        for place in places:
            consumer.seek(TopicPartition(place.topic, place.partition, max(place.offset, 0)))
        return sum(max(place.offset, 0) for place in places)

    producer = _confluent_producer(job)
    done = 0
    while done < job.total:
        messages = [message for message in consumer.consume(TAKE, 1.0) if message.error() is None]
        if not messages:
            with suppress(KafkaException):
                done = rewind()
            continue
        try:
            producer.begin_transaction()
            for message in messages:
                producer.produce(job.target, b"copy of " + message.value(), partition=message.partition())
            if job.aborts():
                producer.abort_transaction(WAIT_S)
                rewind()
                continue
            ends = {message.partition(): message.offset() + 1 for message in messages}
            places = [TopicPartition(job.source, partition, offset) for partition, offset in ends.items()]
            producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), WAIT_S)
            producer.commit_transaction(WAIT_S)
            done += len(messages)
            job.progress(done)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                producer.abort_transaction(WAIT_S)
            else:
                producer = _confluent_producer(job)
            rewind()
    consumer.close()


def _confluent_producer(job: Job) -> Any:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": job.bootstrap,
            "transactional.id": job.name,
            "linger.ms": 1,
            # When the only broker goes away, librdkafka 2.16 forgets all brokers, but then waits for its group
            # coordinator by the forgotten handle, until the call times out.
            "metadata.recovery.strategy": "none",
        },
    )
    producer.init_transactions(WAIT_S)
    return producer


def copy_with_kafka_python(job: Job) -> None:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

    consumer = KafkaConsumer(
        job.source,
        bootstrap_servers=job.bootstrap,
        group_id=job.name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        session_timeout_ms=SESSION_MS,
        reconnect_backoff_max_ms=RECONNECT_MS,
    )

    def new_producer() -> Any:
        made = KafkaProducer(
            bootstrap_servers=job.bootstrap, transactional_id=job.name, reconnect_backoff_max_ms=RECONNECT_MS
        )
        try:
            made.init_transactions()
        except KafkaError:
            made.close(0)
            raise
        return made

    def rewind() -> int:
        total = 0
        for place in consumer.assignment():
            offset = consumer.committed(place) or 0
            consumer.seek(place, offset)
            total += offset
        return total

    producer = new_producer()
    done = 0
    while done < job.total:
        polled = consumer.poll(1000, max_records=TAKE)
        if not polled:
            done = rewind()
            continue
        try:
            producer.begin_transaction()
            for place, messages in polled.items():
                for message in messages:
                    producer.send(job.target, b"copy of " + message.value, partition=place.partition)
            if job.aborts():
                producer.abort_transaction()
                rewind()
                continue
            ends = {place: OffsetAndMetadata(messages[-1].offset + 1, "", -1) for place, messages in polled.items()}
            producer.send_offsets_to_transaction(ends, consumer.group_metadata())
            producer.commit_transaction()
            done += sum(map(len, polled.values()))
            job.progress(done)
        except KafkaError:
            producer.close(0)
            producer = new_producer()
            rewind()
    producer.close(WAIT_S)
    consumer.close()


def copy_with_aiokafka(job: Job) -> None:
    asyncio.run(_copy_with_aiokafka(job))


async def _copy_with_aiokafka(job: Job) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.errors import KafkaError

    consumer = AIOKafkaConsumer(
        job.source,
        bootstrap_servers=job.bootstrap,
        group_id=job.name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
        session_timeout_ms=SESSION_MS,
    )
    await consumer.start()

    async def rewind() -> int:
        total = 0
        for place in consumer.assignment():
            offset = await consumer.committed(place) or 0
            consumer.seek(place, offset)
            total += offset
        return total

    producer = await _aiokafka_producer(job)
    done = 0
    while done < job.total:
        polled = await consumer.getmany(timeout_ms=1000, max_records=TAKE)
        if not polled:
            with suppress(KafkaError):
                done = await rewind()
            continue
        try:
            await producer.begin_transaction()
            for place, messages in polled.items():
                for message in messages:
                    await producer.send(job.target, b"copy of " + message.value, partition=place.partition)
            if job.aborts():
                await producer.abort_transaction()
                await rewind()
                continue
            ends = {place: messages[-1].offset + 1 for place, messages in polled.items()}
            await producer.send_offsets_to_transaction(ends, job.name)
            await producer.commit_transaction()
            done += sum(map(len, polled.values()))
            job.progress(done)
        except KafkaError:
            with suppress(KafkaError):
                await producer.stop()
            producer = await _aiokafka_producer(job)
            await rewind()
    await producer.stop()
    await consumer.stop()


async def _aiokafka_producer(job: Job) -> Any:
    """A started producer. aiokafka fails at once when no broker answers, so this waits for a restart."""
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    deadline = asyncio.get_running_loop().time() + WAIT_S
    while True:
        producer = AIOKafkaProducer(bootstrap_servers=job.bootstrap, transactional_id=job.name)
        try:
            await producer.start()
        except KafkaError:
            await producer.stop()
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(0.1)
        else:
            return producer


COPIERS = {
    "confluent-kafka": copy_with_confluent,
    "kafka-python": copy_with_kafka_python,
    "aiokafka": copy_with_aiokafka,
}
