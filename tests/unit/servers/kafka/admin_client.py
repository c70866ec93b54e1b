"""A client of a Kafka server, and the versions of every API."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.kafka_server import RawClient, running_kafka_server

from tidemill.servers.kafka.api_table import standard_table
from tidemill.servers.kafka.listener import KafkaServer

VERSIONS = {api.key: range(api.versions[0], api.versions[1] + 1) for api in standard_table().listed()}


@asynccontextmanager
async def connected(
    folder: Path, settings: dict[str, str] | None = None
) -> AsyncIterator[tuple[RawClient, KafkaServer]]:
    async with running_kafka_server(folder, settings) as server:
        client = await RawClient.connect(server)
        yield client, server
        await client.close()
