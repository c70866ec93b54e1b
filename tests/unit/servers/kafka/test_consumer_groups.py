"""Consumer groups (KIP-848) through the Kafka server, in every version."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka_server import RawClient, request_part
from tests.unit.servers.kafka.admin_client import VERSIONS, connected
from tests.unit.servers.kafka.groups_client import (
    COMMIT,
    DESCRIBE,
    DESCRIBE_CONSUMERS,
    FETCH,
    LIST,
    PULSE,
    SESSION,
    commit_fields,
    fetch_fields,
    found,
)

from tidemill.model.errors import (
    GroupIdNotFound,
    InvalidGroupId,
    InvalidRegularExpression,
    InvalidRequest,
    KafkaError,
    StaleMemberEpoch,
    UnknownMemberId,
    UnsupportedAssignor,
    UnsupportedVersion,
)

pytestmark = pytest.mark.event_loop("uvloop")


async def pulse(client: RawClient, version: int, **fields: Any) -> Any:
    joining = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout": SESSION,
        "subscribed_topic_names": ("t",),
        "topic_partitions": (),
    }
    return await client.ask(PULSE, version, **{**joining, **fields})


@pytest.mark.parametrize("version", VERSIONS[PULSE])
async def test_a_life_in_a_consumer_group(tmp_path: Path, version: int) -> None:
    async with connected(tmp_path) as (client, server):
        topic = await server.broker.topics.create("t", partitions=3)
        reported = await pulse(client, version, member_id="m" if version else "")
        assert (reported.error_code, reported.error_message, reported.member_epoch) == (0, None, 1)
        assert reported.heartbeat_interval == timedelta(seconds=5)
        assert reported.member_id
        (assigned,) = reported.assignment.topic_partitions
        assert (assigned.topic_id, assigned.partitions) == (topic.topic_id, (0, 1, 2))
        mine = reported.member_id
        quiet = {"rebalance_timeout": timedelta(milliseconds=-1), "subscribed_topic_names": None}
        has = request_part(PULSE, version, "TopicPartitions", topic_id=topic.topic_id, partitions=(0, 1, 2))
        for said in ((has,), None):
            reported = await pulse(client, version, member_id=mine, member_epoch=1, topic_partitions=said, **quiet)
            assert (reported.error_code, reported.assignment) == (0, None)
        fields = commit_fields(9, "t", (0, 5, ""), generation_id_or_member_epoch=9, member_id=mine)
        (topic_reported,) = (await client.ask(COMMIT, 9, **fields)).topics
        assert topic_reported.partitions[0].error_code == StaleMemberEpoch.code
        fields = commit_fields(8, "t", (0, 5, ""), generation_id_or_member_epoch=1, member_id=mine)
        (topic_reported,) = (await client.ask(COMMIT, 8, **fields)).topics
        assert topic_reported.partitions[0].error_code == UnsupportedVersion.code
        answer = await client.ask(FETCH, 9, **fetch_fields(9, "t", 0, member_id=mine, member_epoch=9))
        assert found(9, answer)[0] == StaleMemberEpoch.code
        for describe in VERSIONS[DESCRIBE_CONSUMERS]:
            described = await client.ask(DESCRIBE_CONSUMERS, describe, group_ids=("g", "unknown"))
            group, absent = described.groups
            assert (group.group_state, group.group_epoch, group.assignor_name) == ("Stable", 1, "uniform")
            (each,) = group.members
            assert (each.member_id, each.member_epoch, each.subscribed_topic_names) == (mine, 1, ("t",))
            assert each.assignment == each.target_assignment
            assert each.assignment.topic_partitions[0].topic_name == "t"
            assert absent.error_code == GroupIdNotFound.code
        (classic,) = (await client.ask(DESCRIBE, 6, groups=("g",))).groups
        assert classic.error_code == GroupIdNotFound.code
        reported = await pulse(client, version, member_id=mine, member_epoch=-1, topic_partitions=None, **quiet)
        assert (reported.error_code, reported.member_epoch) == (0, -1)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, InvalidGroupId),
        ({"member_epoch": 4}, UnknownMemberId),
        ({"subscribed_topic_names": None}, InvalidRequest),
        ({"server_assignor": "fair"}, UnsupportedAssignor),
        ({"subscribed_topic_regex": "("}, InvalidRegularExpression),
    ],
)
async def test_refused_heartbeats(tmp_path: Path, fields: dict[str, Any], error: type[KafkaError]) -> None:
    async with connected(tmp_path) as (client, _server):
        reported = await pulse(client, 1, **fields)
        assert reported.error_code == error.code
        assert reported.error_message
        assert not (await client.ask(LIST, 5)).groups
