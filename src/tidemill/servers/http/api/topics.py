"""Topics in the JSON API: lists and descriptions from memory of the brokers, changes through the Kafka protocol."""

from collections.abc import Sequence
from typing import Any, Literal

from tidemill.broker.broker import BrokerNode
from tidemill.client.kafka.active_producers import ActiveProducer
from tidemill.client.kafka.client import KafkaClient
from tidemill.client.kafka.topic_admin import TopicToCreate
from tidemill.client.kafka.topic_configs import DescribedSetting
from tidemill.cluster.core.image import PartitionInfo
from tidemill.model.topics import TopicPartition
from tidemill.security.client_rights import ClientRights
from tidemill.security.core.resources import Operation, ResourceType
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext, ApiHandler
from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.servers.http.api.broker_parts import PartKind
from tidemill.servers.http.api.groups import topic_groups
from tidemill.servers.http.api.paging import rows_of
from tidemill.servers.http.api.refused_fields import named_fields
from tidemill.servers.http.api.topic_access import check_partition_of, described_topic
from tidemill.servers.http.api.topic_history import show_topic_history
from tidemill.servers.http.api.topic_list import TOPIC_SIZES, list_topics
from tidemill.wire.http.groups import TopicGroups
from tidemill.wire.http.topics import (
    CreatedTopic,
    NewTopicInput,
    PartitionFacts,
    PartitionFactsPart,
    PartitionFactsQuery,
    PartitionRow,
    PartitionStart,
    PartitionStarts,
    ProducerPage,
    ProducerQuery,
    ProducerRow,
    RecordDeletionsInput,
    SettingSource,
    TopicDescription,
    TopicPartitionsInput,
    TopicSettingList,
    TopicSettingRow,
    TopicSettingsInput,
)

PRODUCERS_MAX = 100_000
"""The most producers of which a request selects a page."""
_SOURCES: dict[int, Literal["topic", "broker"]] = {1: "topic", 2: "broker", 3: "broker", 4: "broker"}
"""Kafka's numbers: a topic's own value, and the values that a broker gives."""
_KINDS: dict[int, Literal["boolean", "string", "int", "long", "double", "list"]] = {
    1: "boolean",
    2: "string",
    3: "int",
    4: "int",
    5: "long",
    6: "double",
    7: "list",
}


async def describe_topic(context: ApiContext, call: ApiCall[None, None]) -> TopicDescription:
    """A topic with its partitions and overrides."""
    topic = described_topic(context.broker, call.rights, call.name("topic"))
    gathered = await context.parts.gather(PARTITION_FACTS, call.rights, PartitionFactsQuery(topic=topic.name))
    states = {each.partition: each for part in gathered.parts.values() for each in part.partitions}
    shows_settings = call.rights.allows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name)
    return TopicDescription(
        topic=topic.name,
        topic_id=str(topic.topic_id),
        internal=topic.internal,
        partitions=[_partition_row(each, states.get(each.index)) for each in topic.partitions],
        config=dict(topic.overrides) if shows_settings else None,
        unreachable_brokers=gathered.unreachable,
    )


def _partition_row(known: PartitionInfo, state: PartitionFacts | None) -> PartitionRow:
    return PartitionRow(
        partition=known.index,
        leader=known.leader if known.leader >= 0 else None,
        replicas=list(known.replicas),
        isr=list(known.isr),
        leader_epoch=known.leader_epoch if state is None else state.leader_epoch,
        start=None if state is None else state.start,
        end=None if state is None else state.end,
        stable=None if state is None else state.stable,
        records=None if state is None else state.end - state.start,
        bytes=None if state is None else state.bytes,
    )


async def _facts_here(broker: BrokerNode, rights: ClientRights, asked: PartitionFactsQuery) -> PartitionFactsPart:
    topic = broker.view.topic(asked.topic)
    if topic is None or not rights.allows(Operation.DESCRIBE, ResourceType.TOPIC, asked.topic):
        return PartitionFactsPart(partitions=[])
    found = [broker.partitions.find(topic.name, each.index) for each in topic.partitions]
    return PartitionFactsPart(
        partitions=[
            PartitionFacts(
                partition=each.index,
                leader_epoch=each.leader_epoch,
                start=each.log_start_offset,
                end=each.high_watermark,
                stable=each.last_stable_offset,
                bytes=each.size_bytes,
            )
            for each in found
            if each is not None and each.leads
        ]
    )


async def list_topic_groups(context: ApiContext, call: ApiCall[None, None]) -> TopicGroups:
    """The groups that read a topic, with their lag."""
    topic = described_topic(context.broker, call.rights, call.name("topic"))
    return await topic_groups(context, call.rights, topic.name)


async def create_topic(context: ApiContext, call: ApiCall[None, NewTopicInput]) -> CreatedTopic:
    """Create a topic."""
    body = call.body
    wanted = TopicToCreate(body.topic, body.partitions, body.replication_factor, body.config)
    with named_fields(body.config):
        await context.as_client(
            call.rights, lambda client: client.create_topic(wanted, validate_only=body.validate_only)
        )
    known = context.broker.view.topic(body.topic)
    count = body.partitions if known is None else len(known.partitions)
    return CreatedTopic(topic=body.topic, partitions=count, created=not body.validate_only)


async def delete_topic(context: ApiContext, call: ApiCall[None, None]) -> None:
    """Delete a topic with all its records."""
    name = described_topic(context.broker, call.rights, call.name("topic")).name
    await context.as_client(call.rights, lambda client: client.delete_topic(name))


async def add_partitions(context: ApiContext, call: ApiCall[None, TopicPartitionsInput]) -> None:
    """Add partitions."""
    name = described_topic(context.broker, call.rights, call.name("topic")).name
    with named_fields({}):
        await context.as_client(call.rights, lambda client: client.extend_topic(name, call.body.partitions))


async def delete_records(context: ApiContext, call: ApiCall[None, RecordDeletionsInput]) -> PartitionStarts:
    """Delete the records before an offset of each partition."""
    topic = described_topic(context.broker, call.rights, call.name("topic"))
    before = {TopicPartition(topic.name, each.partition): each.before for each in call.body.partitions}
    if len(before) != len(call.body.partitions):
        raise ApiProblem(400, "a partition is there twice; name each once")
    for each in before:
        check_partition_of(topic, each.partition)
    starts = await context.as_client(call.rights, lambda client: client.delete_records(before))
    return PartitionStarts(
        topic=topic.name,
        partitions=[PartitionStart(partition=place.partition, start=start) for place, start in sorted(starts.items())],
    )


async def list_settings(context: ApiContext, call: ApiCall[None, None]) -> TopicSettingList:
    """Every setting of a topic."""
    name = described_topic(context.broker, call.rights, call.name("topic")).name
    return await context.as_client(call.rights, lambda client: _settings(client, name))


async def alter_settings(context: ApiContext, call: ApiCall[None, TopicSettingsInput]) -> TopicSettingList:
    """Set settings of a topic, or remove its overrides. Returns all settings."""
    name = described_topic(context.broker, call.rights, call.name("topic")).name

    def alter(client: KafkaClient) -> TopicSettingList:
        client.alter_topic(name, call.body.config)
        return _settings(client, name)

    with named_fields(call.body.config):
        return await context.as_client(call.rights, alter)


def _settings(client: KafkaClient, topic: str) -> TopicSettingList:
    return TopicSettingList(topic=topic, settings=[_setting_row(each) for each in client.topic_settings(topic)])


def _setting_row(found: DescribedSetting) -> TopicSettingRow:
    return TopicSettingRow(
        name=found.name,
        value=None if found.sensitive else found.value,
        default=None if found.sensitive else found.default,
        source=_SOURCES.get(found.source, "default"),
        kind=_KINDS.get(found.kind, "unknown"),
        read_only=found.read_only,
        documentation=found.documentation,
        sources=[
            SettingSource(name=each.name, value=each.value, source=_SOURCES.get(each.source, "default"))
            for each in found.synonyms
        ],
    )


async def list_producers(context: ApiContext, call: ApiCall[ProducerQuery, None]) -> ProducerPage:
    """The producers that the partitions of a topic remember, those with open transactions first."""
    topic, query = described_topic(context.broker, call.rights, call.name("topic")), call.query
    if query.partition is not None:
        check_partition_of(topic, query.partition)
    wanted = [
        TopicPartition(topic.name, each.index)
        for each in topic.partitions
        if query.partition is None or each.index == query.partition
    ]
    found = await context.as_client(call.rights, lambda client: client.active_producers(wanted))
    everyone = [(place.partition, each) for place, producers in sorted(found.items()) for each in producers]
    open_transactions = sum(each.transaction_start >= 0 for _, each in everyone)
    rows = [
        (partition, each)
        for partition, each in everyone[:PRODUCERS_MAX]
        if (each.transaction_start >= 0 or not query.transactional) and query.search in str(each.producer_id)
    ]
    return ProducerPage(
        topic=topic.name,
        producers=[_producer_row(*each) for each in rows_of(rows, query, _open_first)],
        total=len(rows),
        open_transactions=open_transactions,
    )


def _open_first(row: tuple[int, ActiveProducer]) -> Any:
    partition, producer = row
    return producer.transaction_start < 0, -producer.last_timestamp_ms, partition, producer.producer_id


def _producer_row(partition: int, producer: ActiveProducer) -> ProducerRow:
    return ProducerRow(
        partition=partition,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp_ms,
        transaction_start=producer.transaction_start if producer.transaction_start >= 0 else None,
    )


PARTITION_FACTS = PartKind("partition-facts", PartitionFactsQuery, PartitionFactsPart, _facts_here)
HANDLERS: dict[str, ApiHandler] = {
    "GET /api/v1/topics": list_topics,
    "POST /api/v1/topics": create_topic,
    "GET /api/v1/topics/{topic}": describe_topic,
    "GET /api/v1/topics/{topic}/history": show_topic_history,
    "DELETE /api/v1/topics/{topic}": delete_topic,
    "POST /api/v1/topics/{topic}/partitions": add_partitions,
    "POST /api/v1/topics/{topic}/delete-records": delete_records,
    "GET /api/v1/topics/{topic}/settings": list_settings,
    "PATCH /api/v1/topics/{topic}/settings": alter_settings,
    "GET /api/v1/topics/{topic}/producers": list_producers,
    "GET /api/v1/topics/{topic}/groups": list_topic_groups,
}
PARTS: Sequence[PartKind[Any, Any]] = (TOPIC_SIZES, PARTITION_FACTS)
