"""Reads topics with aiokafka."""

import asyncio

from aiokafka import AIOKafkaConsumer, TopicPartition
from tests.integration.spark.topics import LIMIT_S


async def committed(servers: str, topic: str, partitions: int) -> list[str]:
    """All values of a topic up to its end, without those of open and aborted transactions."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest", group_id=None
    )
    await consumer.start()
    try:
        parts = [TopicPartition(topic, index) for index in range(partitions)]
        consumer.assign(parts)
        await consumer.seek_to_beginning()
        ends = await consumer.end_offsets(parts)
        found: list[str] = []
        async with asyncio.timeout(LIMIT_S):
            while any([await consumer.position(part) < ends[part] for part in parts]):
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found.extend(record.value.decode() for record in records)
    finally:
        await consumer.stop()
    return found
