"""A Kafka server that checks ACLs, with a topic, a group and a transactional id, and a record of every check."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, fields, is_dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

from tests.support.kafka_server import RawClient, batch, produce_fields, request_part, running_kafka_server

from tidemill.model.topics import TopicPartition
from tidemill.security.acls import Acls
from tidemill.security.authorizer import Authorizer
from tidemill.security.core.acl_table import AclTable
from tidemill.security.core.acls import AclBinding
from tidemill.security.core.resources import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from tidemill.servers.kafka.api import Call
from tidemill.servers.kafka.listener import KafkaServer
from tidemill.transactions.core.state import ProducerIdAndEpoch

DENIALS = frozenset({29, 30, 31, 53})
"""The codes of the *AuthorizationFailed errors."""
Check = tuple[int, Operation, ResourceType]
Right = tuple[Operation, ResourceType, str]
_SECOND = timedelta(seconds=1)


@dataclass
class GuardedServer:
    """The server, a client without a login, and what a test may name in its requests."""

    server: KafkaServer
    client: RawClient
    authorizer: Authorizer
    acls: Acls
    topic_id: UUID
    producer_id: int = -1
    producer_epoch: int = -1

    def grant(self, *rights: Right) -> None:
        """Give the client exactly these rights."""
        self.authorizer.set_table(AclTable(binding(*right) for right in rights))

    async def ask(self, key: int, version: int, /, **fields: Any) -> Any:
        return await self.client.ask(key, version, **fields)

    def part(self, key: int, version: int, kind: str, /, **fields: Any) -> Any:
        return request_part(key, version, kind, **fields)

    def snapshot(self) -> dict[str, Any]:
        """Everything that a refused request must not change."""
        broker = self.server.broker
        log = broker.view.partition("orders", 0)
        return {
            "topics": {topic.name: (len(topic.partitions), dict(topic.overrides)) for topic in broker.view.topics()},
            "log": (log.log_start_offset, log.log_end_offset),
            "groups": {name: broker.groups.fetch(name, None) for name in sorted(broker.groups.group_ids())},
            "transactions": broker.transactions.describe("tx"),
            "acls": list(self.acls.table),
        }


def binding(operation: Operation, resource_type: ResourceType, name: str, *, deny: bool = False) -> AclBinding:
    permission = Permission.DENY if deny else Permission.ALLOW
    return AclBinding(resource_type, name, PatternType.LITERAL, "User:ANONYMOUS", "*", operation, permission)


def on_topic(operation: Operation, name: str = "orders") -> Right:
    return operation, ResourceType.TOPIC, name


def on_group(operation: Operation, name: str = "g") -> Right:
    return operation, ResourceType.GROUP, name


def on_cluster(operation: Operation) -> Right:
    return operation, ResourceType.CLUSTER, CLUSTER_NAME


def on_transaction(operation: Operation, name: str = "tx") -> Right:
    return operation, ResourceType.TRANSACTIONAL_ID, name


@asynccontextmanager
async def guarded_server(folder: Path, settings: dict[str, str] | None = None) -> AsyncIterator[GuardedServer]:
    """A server whose anonymous client has no rights; its topic, group and transactional id exist."""
    async with running_kafka_server(folder, settings) as server:
        broker = server.broker
        topic = await broker.topics.create("orders", partitions=2)
        await broker.topics.create("other")
        client = await RawClient.connect(server)
        await client.ask(0, 9, **produce_fields(9, "orders", 0, batch(b"1", b"2", b"3")))
        await client.ask(10, 3, key="g", key_type=0)
        await client.ask(10, 3, key="tx", key_type=1)
        made = await client.ask(22, 4, transactional_id="tx", transaction_timeout=60 * _SECOND, producer_id=-1)
        await client.ask(8, 8, **commit_fields(8, "g", "orders"))
        await broker.transactions.add_partitions(
            "tx", ProducerIdAndEpoch(made.producer_id, made.producer_epoch), {TopicPartition("other", 0)}
        )
        authorizer = Authorizer(lambda _: False)
        acls = Acls(broker.environment.coordination, authorizer.set_table)
        await acls.start(broker.supervisor)
        broker.security.authorizer, broker.security.acls = authorizer, acls
        try:
            yield GuardedServer(server, client, authorizer, acls, topic.topic_id, made.producer_id, made.producer_epoch)
        finally:
            await client.close()
            await acls.stop()


def commit_fields(version: int, group: str, topic: Any) -> dict[str, Any]:
    part = request_part(8, version, "OffsetCommitRequestPartition", partition_index=0, committed_offset=1)
    entry = request_part(8, version, "OffsetCommitRequestTopic", name=topic, topic_id=topic, partitions=(part,))
    return {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": (entry,)}


def codes(message: Any) -> frozenset[int]:
    """Every error code of a response, except 0."""
    return frozenset(code for code in _codes(message) if code)


def _codes(message: Any) -> Iterator[int]:
    for field in fields(message):
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            yield int(value)
        elif is_dataclass(value):
            yield from _codes(value)
        elif isinstance(value, tuple):
            for each in value:
                if is_dataclass(each):
                    yield from _codes(each)


@contextmanager
def recorded_changes() -> Iterator[set[tuple[int, str]]]:
    """What handlers write to the audit log, by API."""
    found: set[tuple[int, str]] = set()
    real = Call.changed

    def changed(self: Call, what: str, /, **fields: Any) -> None:
        found.add((self.api_key, what))
        real(self, what, **fields)

    with patch.object(Call, "changed", changed):
        yield found


@contextmanager
def recorded_checks() -> Iterator[set[Check]]:
    """The checks that handlers make, by API."""
    found: set[Check] = set()
    allows, anywhere = Call.allows, Call.allows_anywhere

    def recording(call: Call, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        found.add((call.api_key, operation, resource_type))
        return allows(call, operation, resource_type, name)

    def recording_anywhere(call: Call, operation: Operation, resource_type: ResourceType) -> bool:
        found.add((call.api_key, operation, resource_type))
        return anywhere(call, operation, resource_type)

    with patch.object(Call, "allows", recording), patch.object(Call, "allows_anywhere", recording_anywhere):
        yield found
