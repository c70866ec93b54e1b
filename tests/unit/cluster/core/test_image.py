"""The image is a value: changes make the next one and leave the old as it was."""

from uuid import UUID

import pytest

from tidemill.cluster.core.image import (
    Image,
    PartitionInfo,
    PartitionsAdded,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    decode_state,
    decode_topic,
    encode_state,
    encode_topic,
    parse_state_key,
    state_key,
)
from tidemill.cluster.core.placement import PARTITIONS_MAX, place, place_assigned
from tidemill.cluster.core.registration import Endpoint, Registration, decode_registration, encode_registration
from tidemill.model.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    KafkaStorageError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)

CREATED = TopicCreated("orders", UUID(int=1), place([0], 0, 2, 1), {"retention.ms": "5"})


def test_a_created_topic_is_found_by_name_and_id() -> None:
    before = Image()
    image = before.apply(CREATED)
    topic = image.by_name["orders"]
    assert image.by_id[UUID(int=1)] is topic
    assert image.version == before.version + 1
    assert not before.by_name
    assert topic.settings.retention_ms == 5
    assert [info.index for info in topic.partitions] == [0, 1]
    assert not topic.internal


def test_every_change_is_one_version() -> None:
    image = Image().apply(CREATED)
    assert [image.version, image.apply(TopicDeleted("orders")).version] == [Image().version + 1, Image().version + 2]


def test_changes_are_applied_or_rejected() -> None:
    image = Image().apply(CREATED)
    with pytest.raises(TopicAlreadyExists):
        image.apply(CREATED)
    grown = image.apply(PartitionsAdded("orders", place([0], 2, 3, 1)))
    assert len(grown.by_name["orders"].partitions) == 3
    altered = grown.apply(TopicAltered("orders", {"cleanup.policy": "compact"}))
    assert altered.by_name["orders"].settings.compacted
    assert altered.by_id[UUID(int=1)].overrides == {"cleanup.policy": "compact"}
    with pytest.raises(InvalidConfig):
        image.apply(TopicAltered("orders", {"cleanup.policy": "forget"}))
    gone = altered.apply(TopicDeleted("orders"))
    assert not gone.by_name
    assert not gone.by_id
    for change in (TopicDeleted("orders"), TopicAltered("orders", {}), PartitionsAdded("orders", ())):
        with pytest.raises(UnknownTopicOrPartition):
            gone.apply(change)


def test_the_brokers_defaults_lie_below_a_topics_overrides() -> None:
    image = Image(defaults={"retention.ms": "9", "segment.bytes": "1000"}).apply(CREATED)
    assert image.by_name["orders"].settings.retention_ms == 5
    assert image.by_name["orders"].settings.segment_bytes == 1000
    assert image.apply(TopicAltered("orders", {})).by_name["orders"].settings.retention_ms == 9


def test_a_topic_survives_being_written_and_read() -> None:
    topic = Image().apply(CREATED).by_name["orders"]
    assert decode_topic(encode_topic(topic)) == CREATED
    for damaged in (b"", b"[]", b'{"name": "x"}', b'{"name":"x","id":"zz","overrides":{},"partitions":[]}'):
        with pytest.raises(KafkaStorageError):
            decode_topic(damaged)


def test_placement_spreads_leaders_and_replicas() -> None:
    placed = place([2, 0, 1], 0, 6, 2)
    assert [info.leader for info in placed] == [0, 1, 2, 0, 1, 2]
    assert all(len(set(info.replicas)) == 2 and info.isr == info.replicas for info in placed)
    assert place([0, 1, 2], 0, 6, 2) == placed


def test_placement_refuses_what_cannot_be() -> None:
    with pytest.raises(InvalidReplicationFactor):
        place([0], 0, 1, 2)
    with pytest.raises(InvalidPartitions):
        place([0], 0, PARTITIONS_MAX + 1, 1)
    with pytest.raises(InvalidPartitions):
        place([0], 3, 3, 1)
    assert [info.replicas for info in place_assigned([0, 1], {0: [1], 1: [0, 1]})] == [(1,), (0, 1)]
    refused: list[dict[int, list[int]]] = [{}, {1: [0]}, {0: []}, {0: [0, 0]}, {0: [7]}]
    for assignment in refused:
        with pytest.raises(InvalidReplicaAssignment):
            place_assigned([0, 1], assignment)


def test_the_state_of_a_partition_survives_coordination() -> None:
    info = PartitionInfo(7, 2, (2, 3, 1), (2,), 5, 9, adding=(1,), removing=(3,))
    assert decode_state(7, encode_state(info)) == info
    assert parse_state_key(state_key(UUID(int=1), 7)) == (UUID(int=1), 7)
    with pytest.raises(KafkaStorageError):
        decode_state(0, b"[1,2]")
    with pytest.raises(KafkaStorageError):
        parse_state_key("states/orders/7")


def test_a_broker_survives_coordination() -> None:
    broker = Registration(3, UUID(int=3), UUID(int=4), "a", Endpoint("::1", 9092), roles=("carrier",))
    assert decode_registration(encode_registration(broker)) == broker
    assert str(broker.kafka) == "[::1]:9092"
    assert broker.carries
    with pytest.raises(KafkaStorageError):
        decode_registration(b"{}")
