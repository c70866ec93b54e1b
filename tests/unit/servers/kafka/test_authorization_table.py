"""Every API refuses a client without rights with Kafka's error, changes nothing, and serves a client with them.

The checks of the handlers are recorded and compared with the table that the reference page is made from.
"""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support.guarded_server import (
    DENIALS,
    Check,
    GuardedServer,
    Right,
    codes,
    commit_fields,
    guarded_server,
    on_cluster,
    on_group,
    on_topic,
    on_transaction,
    recorded_changes,
    recorded_checks,
)
from tests.support.kafka_server import RawClient, batch, fetch_fields, produce_fields
from tests.support.waiting import eventually_async

from tidemill.security.core.resources import Operation as Op
from tidemill.servers.kafka.api_table import standard_table
from tidemill.servers.kafka.authorization_table import AUTHORIZATION
from tidemill.shares.core.durable_state import ShareKey

TOPIC, GROUP, CLUSTER, TRANSACTION = 29, 30, 31, 53
_SECOND = timedelta(seconds=1)

Fields = Callable[[GuardedServer], dict[str, Any]]
RECORDED: set[Check] = set()
AUDITED = {
    3: "topic_created",
    19: "topic_created",
    20: "topic_deleted",
    21: "records_deleted",
    30: "acl_created",
    33: "configs_altered",
    37: "partitions_created",
    42: "group_deleted",
    44: "configs_altered",
    47: "offsets_deleted",
    49: "quota_altered",
    91: "share_offsets_altered",
    92: "share_offsets_deleted",
}
"""What the audit log says after a change, by API."""
AUDITED_IN_CLUSTERS = {31, 43, 45, 51, 64}
"""Deleted ACLs, elections, moves, users, lost brokers: tests/integration/console/test_every_broker.py has them."""
READING = {1, 2, 9, 10, 15, 16, 18, 23, 29, 32, 35, 46, 48, 50, 60, 61, 65, 66, 69, 74, 75, 77, 84, 87, 90}
LOGIN = {17, 36}
TRAFFIC = {0, 8, 11, 12, 13, 14, 22, 24, 25, 26, 27, 28, 68, 76, 78, 79, 83, 85, 86}
"""Producers, consumers and brokers at work: too many changes for a log, as in Kafka."""
CHANGED: set[tuple[int, str]] = set()


class ApiCase(NamedTuple):
    """One request: what refuses it, and the rights that it needs, each of them."""

    key: int
    version: int
    fields: Fields
    denied: set[int]
    rights: tuple[Right, ...]
    label: str = ""


def _topics(key: int, version: int, kind: str, name_field: str, **more: Any) -> Fields:
    def made(at: GuardedServer) -> dict[str, Any]:
        return {"topics": (at.part(key, version, kind, **{name_field: "orders"}, **more),)}

    return made


def _nested(key: int, version: int, kind: str, part: str, part_fields: dict[str, Any], **more: Any) -> Fields:
    """A request with one partition of the topic."""

    def made(at: GuardedServer) -> dict[str, Any]:
        inner = at.part(key, version, part, **part_fields)
        entry = at.part(key, version, kind, name="orders", topic="orders", topic_id=at.topic_id, partitions=(inner,))
        return {"topics": (entry,), **more}

    return made


def _transactional_produce(at: GuardedServer) -> dict[str, Any]:
    identity: dict[str, Any] = {"producer_id": at.producer_id, "producer_epoch": at.producer_epoch, "base_sequence": 0}
    records = batch(b"x", transactional=True, **identity)
    return {**produce_fields(9, "orders", 0, records), "transactional_id": "tx"}


def _offsets(at: GuardedServer) -> dict[str, Any]:
    topics = (at.part(9, 8, "OffsetFetchRequestTopics", name="orders", partition_indexes=(0,)),)
    group = at.part(9, 8, "OffsetFetchRequestGroup", group_id="g", topics=topics)
    return {"groups": (group,)}


def _transaction(at: GuardedServer) -> dict[str, Any]:
    return {"transactional_id": "tx", "producer_id": at.producer_id, "producer_epoch": at.producer_epoch}


def _transaction_offsets(at: GuardedServer) -> dict[str, Any]:
    part = at.part(28, 3, "TxnOffsetCommitRequestPartition", partition_index=0, committed_offset=2)
    topics = (at.part(28, 3, "TxnOffsetCommitRequestTopic", name="orders", partitions=(part,)),)
    return {**_transaction(at), "group_id": "g", "generation_id": -1, "topics": topics}


def _added(at: GuardedServer) -> dict[str, Any]:
    topics = (at.part(24, 3, "AddPartitionsToTxnTopic", name="orders", partitions=(0,)),)
    return {f"v3_and_below_{name}": value for name, value in {**_transaction(at), "topics": topics}.items()}


def _configs(key: int, version: int, kind: str, resource_type: int, name: str, **more: Any) -> Fields:
    def made(at: GuardedServer) -> dict[str, Any]:
        fields = {"resource_type": resource_type, "resource_name": name, **more}
        if key != 32:
            setting = "retention.ms" if resource_type == 2 else "tidemill.clock.accept"
            value = "1000" if resource_type == 2 else "true"
            fields["configs"] = (at.part(key, version, "AlterableConfig", name=setting, value=value),)
        return {"resources": (at.part(key, version, kind, **fields),)}

    return made


def _acl_filter(at: GuardedServer) -> dict[str, Any]:
    return {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}


def _acl_creation(at: GuardedServer) -> dict[str, Any]:
    fields = {"resource_type": 2, "resource_name": "new", "principal": "User:bob", "host": "*"}
    return {"creations": (at.part(30, 3, "AclCreation", **fields, operation=3, permission_type=3),)}


def _quota(at: GuardedServer) -> dict[str, Any]:
    entity = (at.part(49, 0, "EntityData", entity_type="user", entity_name="bob"),)
    ops = (at.part(49, 0, "OpData", key="producer_byte_rate", value=1024.0),)
    return {"entries": (at.part(49, 0, "EntryData", entity=entity, ops=ops),), "validate_only": False}


def _join(at: GuardedServer) -> dict[str, Any]:
    protocols = (at.part(11, 5, "JoinGroupRequestProtocol", name="range", metadata=b""),)
    times = {"session_timeout": 10 * _SECOND, "rebalance_timeout": 10 * _SECOND}
    return {"group_id": "g", "member_id": "", "protocol_type": "consumer", "protocols": protocols, **times}


def _share_key(at: GuardedServer) -> dict[str, Any]:
    return {"coordinator_keys": (ShareKey("g", at.topic_id, 0).text,), "key_type": 2}


def _share_fetch(at: GuardedServer) -> dict[str, Any]:
    topics = _nested(78, 2, "FetchTopic", "FetchPartition", {"partition_index": 0})(at)["topics"]
    limits = {"max_wait": timedelta(0), "max_records": 1, "batch_size": 1}
    return {"group_id": "g", "member_id": "m", "share_session_epoch": 0, "topics": topics, **limits}


def _share_offsets(at: GuardedServer) -> dict[str, Any]:
    topic = at.part(90, 1, "DescribeShareGroupOffsetsRequestTopic", topic_name="orders", partitions=(0,))
    return {"groups": (at.part(90, 1, "DescribeShareGroupOffsetsRequestGroup", group_id="shared", topics=(topic,)),)}


def _altered_share_offsets(at: GuardedServer) -> dict[str, Any]:
    part = at.part(91, 0, "AlterShareGroupOffsetsRequestPartition", partition_index=0, start_offset=1)
    topic = at.part(91, 0, "AlterShareGroupOffsetsRequestTopic", topic_name="orders", partitions=(part,))
    return {"group_id": "shared", "topics": (topic,)}


def _deleted_share_offsets(at: GuardedServer) -> dict[str, Any]:
    topic = at.part(92, 0, "DeleteShareGroupOffsetsRequestTopic", topic_name="orders")
    return {"group_id": "shared", "topics": (topic,)}


def _share_acknowledge(_: GuardedServer) -> dict[str, Any]:
    return {"group_id": "g", "member_id": "m", "share_session_epoch": 1, "topics": ()}


MEMBER = {"group_id": "g", "generation_id": 1, "member_id": "m"}
PARTITION = {"partition_index": 0}
READ_GROUP = (on_group(Op.READ),)
WRITE_TRANSACTION = on_transaction(Op.WRITE)

CASES = [
    ApiCase(0, 9, lambda _: produce_fields(9, "orders", 0, batch(b"x")), {TOPIC}, (on_topic(Op.WRITE),)),
    ApiCase(0, 13, lambda at: produce_fields(13, at.topic_id, 0, batch(b"x")), {TOPIC}, (on_topic(Op.WRITE),), "by id"),
    ApiCase(0, 9, _transactional_produce, {TRANSACTION}, (WRITE_TRANSACTION, on_topic(Op.WRITE)), "in a transaction"),
    ApiCase(1, 11, lambda _: fetch_fields(11, "orders", {0: 0}), {TOPIC}, (on_topic(Op.READ),)),
    ApiCase(1, 13, lambda at: fetch_fields(13, at.topic_id, {0: 0}), {TOPIC}, (on_topic(Op.READ),), "by id"),
    ApiCase(
        2,
        7,
        _nested(2, 7, "ListOffsetsTopic", "ListOffsetsPartition", {**PARTITION, "timestamp": -1}),
        {TOPIC},
        (on_topic(Op.DESCRIBE),),
    ),
    ApiCase(3, 9, _topics(3, 9, "MetadataRequestTopic", "name"), {TOPIC}, (on_topic(Op.DESCRIBE),)),
    ApiCase(
        3,
        12,
        lambda at: {"topics": (at.part(3, 12, "MetadataRequestTopic", topic_id=at.topic_id, name=None),)},
        {TOPIC},
        (on_topic(Op.DESCRIBE),),
        "by id",
    ),
    ApiCase(8, 8, lambda _: commit_fields(8, "g", "orders"), {GROUP}, (on_group(Op.READ), on_topic(Op.READ))),
    ApiCase(
        8, 10, lambda at: commit_fields(10, "g", at.topic_id), {GROUP}, (on_group(Op.READ), on_topic(Op.READ)), "by id"
    ),
    ApiCase(9, 8, _offsets, {GROUP}, (on_group(Op.DESCRIBE), on_topic(Op.DESCRIBE))),
    ApiCase(
        9,
        7,
        lambda at: {
            "group_id": "g",
            "topics": (at.part(9, 7, "OffsetFetchRequestTopic", name="orders", partition_indexes=(0,)),),
        },
        {GROUP},
        (on_group(Op.DESCRIBE), on_topic(Op.DESCRIBE)),
        "of one group",
    ),
    ApiCase(10, 3, lambda _: {"key": "g", "key_type": 0}, {GROUP}, (on_group(Op.DESCRIBE),)),
    ApiCase(10, 6, lambda _: {"coordinator_keys": ("g",), "key_type": 0}, {GROUP}, (on_group(Op.DESCRIBE),), "many"),
    ApiCase(
        10, 3, lambda _: {"key": "tx", "key_type": 1}, {TRANSACTION}, (on_transaction(Op.DESCRIBE),), "transaction"
    ),
    ApiCase(11, 5, _join, {GROUP}, READ_GROUP),
    ApiCase(12, 4, lambda _: MEMBER, {GROUP}, READ_GROUP),
    ApiCase(
        13,
        4,
        lambda at: {"group_id": "g", "members": (at.part(13, 4, "MemberIdentity", member_id="m"),)},
        {GROUP},
        READ_GROUP,
    ),
    ApiCase(13, 1, lambda _: {"group_id": "g", "member_id": "m"}, {GROUP}, READ_GROUP, "one member"),
    ApiCase(14, 4, lambda _: MEMBER, {GROUP}, READ_GROUP),
    ApiCase(15, 6, lambda _: {"groups": ("g",)}, {GROUP}, (on_group(Op.DESCRIBE),)),
    ApiCase(
        19,
        7,
        lambda at: {"topics": (at.part(19, 7, "CreatableTopic", name="new", num_partitions=1, replication_factor=1),)},
        {TOPIC},
        (on_topic(Op.CREATE, "new"), on_topic(Op.DESCRIBE_CONFIGS, "new")),
    ),
    ApiCase(20, 5, lambda _: {"topic_names": ("orders",), "timeout": _SECOND}, {TOPIC}, (on_topic(Op.DELETE),)),
    ApiCase(
        20,
        6,
        lambda at: {"topics": (at.part(20, 6, "DeleteTopicState", name=None, topic_id=at.topic_id),)},
        {TOPIC},
        (on_topic(Op.DELETE),),
        "by id",
    ),
    ApiCase(
        20, 5, lambda _: {"topic_names": ("orders",)}, {TOPIC}, (on_cluster(Op.DELETE),), "by a right on the cluster"
    ),
    ApiCase(
        21,
        2,
        _nested(21, 2, "DeleteRecordsTopic", "DeleteRecordsPartition", {**PARTITION, "offset": 1}),
        {TOPIC},
        (on_topic(Op.DELETE),),
    ),
    ApiCase(
        22,
        4,
        lambda _: {"transactional_id": "tx", "transaction_timeout": 60 * _SECOND, "producer_id": -1},
        {TRANSACTION},
        (WRITE_TRANSACTION,),
    ),
    ApiCase(22, 4, lambda _: {"transactional_id": None}, {CLUSTER}, (on_cluster(Op.IDEMPOTENT_WRITE),), "idempotent"),
    ApiCase(22, 4, lambda _: {"transactional_id": None}, {CLUSTER}, (on_topic(Op.WRITE, "any"),), "by a topic"),
    ApiCase(
        23,
        4,
        _nested(
            23,
            4,
            "OffsetForLeaderTopic",
            "OffsetForLeaderPartition",
            {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0},
        ),
        {TOPIC},
        (on_topic(Op.DESCRIBE),),
    ),
    ApiCase(24, 3, _added, {TRANSACTION}, (WRITE_TRANSACTION, on_topic(Op.WRITE))),
    ApiCase(
        25, 3, lambda at: {**_transaction(at), "group_id": "g"}, {TRANSACTION}, (WRITE_TRANSACTION, on_group(Op.READ))
    ),
    ApiCase(26, 3, lambda at: {**_transaction(at), "committed": True}, {TRANSACTION}, (WRITE_TRANSACTION,)),
    ApiCase(28, 3, _transaction_offsets, {TRANSACTION}, (WRITE_TRANSACTION, on_group(Op.READ), on_topic(Op.READ))),
    ApiCase(29, 3, _acl_filter, {CLUSTER}, (on_cluster(Op.DESCRIBE),)),
    ApiCase(30, 3, _acl_creation, {CLUSTER}, (on_cluster(Op.ALTER),)),
    ApiCase(
        31,
        3,
        lambda at: {"filters": (at.part(31, 3, "DeleteAclsFilter", **_acl_filter(at)),)},
        {CLUSTER},
        (on_cluster(Op.ALTER),),
    ),
    ApiCase(32, 4, _configs(32, 4, "DescribeConfigsResource", 2, "orders"), {TOPIC}, (on_topic(Op.DESCRIBE_CONFIGS),)),
    ApiCase(
        32,
        4,
        _configs(32, 4, "DescribeConfigsResource", 4, "0"),
        {CLUSTER},
        (on_cluster(Op.DESCRIBE_CONFIGS),),
        "broker",
    ),
    ApiCase(
        32, 4, _configs(32, 4, "DescribeConfigsResource", 32, "g"), {GROUP}, (on_group(Op.DESCRIBE_CONFIGS),), "group"
    ),
    ApiCase(33, 2, _configs(33, 2, "AlterConfigsResource", 32, "g"), {GROUP}, (on_group(Op.ALTER_CONFIGS),), "group"),
    ApiCase(44, 1, _configs(44, 1, "AlterConfigsResource", 32, "g"), {GROUP}, (on_group(Op.ALTER_CONFIGS),), "group"),
    ApiCase(74, 1, lambda _: {"resource_types": ()}, {CLUSTER}, (on_cluster(Op.DESCRIBE_CONFIGS),)),
    ApiCase(33, 2, _configs(33, 2, "AlterConfigsResource", 2, "orders"), {TOPIC}, (on_topic(Op.ALTER_CONFIGS),)),
    ApiCase(
        33, 2, _configs(33, 2, "AlterConfigsResource", 4, "0"), {CLUSTER}, (on_cluster(Op.ALTER_CONFIGS),), "broker"
    ),
    ApiCase(35, 4, lambda _: {"topics": None}, {CLUSTER}, (on_cluster(Op.DESCRIBE),)),
    ApiCase(
        37,
        3,
        _topics(37, 3, "CreatePartitionsTopic", "name", count=3, assignments=None),
        {TOPIC},
        (on_topic(Op.ALTER),),
    ),
    ApiCase(42, 2, lambda _: {"groups_names": ("g",)}, {GROUP}, (on_group(Op.DELETE),)),
    ApiCase(
        43,
        2,
        lambda at: {"topic_partitions": (at.part(43, 2, "TopicPartitions", topic="orders", partitions=(0,)),)},
        {CLUSTER},
        (on_cluster(Op.ALTER),),
    ),
    ApiCase(
        43,
        0,
        lambda at: {"topic_partitions": (at.part(43, 0, "TopicPartitions", topic="orders", partitions=(0,)),)},
        {CLUSTER},
        (on_cluster(Op.ALTER),),
        "version 0",
    ),
    ApiCase(44, 1, _configs(44, 1, "AlterConfigsResource", 2, "orders"), {TOPIC}, (on_topic(Op.ALTER_CONFIGS),)),
    ApiCase(
        44, 1, _configs(44, 1, "AlterConfigsResource", 4, "0"), {CLUSTER}, (on_cluster(Op.ALTER_CONFIGS),), "broker"
    ),
    ApiCase(
        45,
        1,
        _nested(45, 1, "ReassignableTopic", "ReassignablePartition", {**PARTITION, "replicas": (0,)}),
        {CLUSTER},
        (on_cluster(Op.ALTER),),
    ),
    ApiCase(46, 0, lambda _: {"topics": None}, {CLUSTER}, (on_cluster(Op.DESCRIBE),)),
    ApiCase(
        47,
        0,
        _nested(47, 0, "OffsetDeleteRequestTopic", "OffsetDeleteRequestPartition", PARTITION, group_id="g"),
        {GROUP},
        (on_group(Op.DELETE), on_topic(Op.READ)),
    ),
    ApiCase(48, 0, lambda _: {"components": (), "strict": False}, {CLUSTER}, (on_cluster(Op.DESCRIBE_CONFIGS),)),
    ApiCase(49, 0, _quota, {CLUSTER}, (on_cluster(Op.ALTER_CONFIGS),)),
    ApiCase(50, 0, lambda _: {"users": None}, {CLUSTER}, (on_cluster(Op.DESCRIBE),)),
    ApiCase(
        51,
        0,
        lambda at: {"deletions": (at.part(51, 0, "ScramCredentialDeletion", name="u", mechanism=1),), "upsertions": ()},
        {CLUSTER},
        (on_cluster(Op.ALTER),),
    ),
    ApiCase(61, 0, _topics(61, 0, "TopicRequest", "name", partition_indexes=(0,)), {TOPIC}, (on_topic(Op.READ),)),
    ApiCase(64, 0, lambda _: {"broker_id": 7}, {CLUSTER}, (on_cluster(Op.ALTER),)),
    ApiCase(65, 0, lambda _: {"transactional_ids": ("tx",)}, {TRANSACTION}, (on_transaction(Op.DESCRIBE),)),
    ApiCase(
        68,
        1,
        lambda _: {
            "group_id": "g848",
            "member_id": "m",
            "rebalance_timeout": 10 * _SECOND,
            "subscribed_topic_names": ("orders",),
            "topic_partitions": (),
        },
        {GROUP},
        (on_group(Op.READ, "g848"), on_topic(Op.DESCRIBE)),
    ),
    ApiCase(69, 1, lambda _: {"group_ids": ("g",)}, {GROUP}, (on_group(Op.DESCRIBE),)),
    ApiCase(
        75,
        0,
        _topics(75, 0, "TopicRequest", "name"),
        {TOPIC},
        (on_topic(Op.DESCRIBE),),
    ),
    ApiCase(10, 6, _share_key, {CLUSTER}, (on_cluster(Op.CLUSTER_ACTION),), "share partition"),
    ApiCase(
        76,
        1,
        lambda _: {"group_id": "shared", "member_id": "m", "subscribed_topic_names": ("orders",)},
        {GROUP},
        (on_group(Op.READ, "shared"), on_topic(Op.DESCRIBE)),
    ),
    ApiCase(77, 1, lambda _: {"group_ids": ("g",)}, {GROUP}, (on_group(Op.DESCRIBE),)),
    ApiCase(78, 2, _share_fetch, {GROUP}, (on_group(Op.READ), on_topic(Op.READ))),
    ApiCase(79, 2, _share_acknowledge, {GROUP}, (on_group(Op.READ),)),
]


def _name(case: ApiCase) -> str:
    return f"{standard_table().by_key[case.key].name} {case.label}".strip()


@pytest.fixture(autouse=True)
def _recorded() -> Iterator[None]:
    with recorded_checks() as found, recorded_changes() as changed:
        yield
    RECORDED.update(found)
    CHANGED.update(changed)
    for key, operation, resource_type in found:
        listed = {right[:2] for right in AUTHORIZATION[key].rights}
        assert (operation, resource_type) in listed, f"API {key} checks {operation!r} on {resource_type!r}"


@pytest.mark.parametrize("case", CASES, ids=_name)
async def test_api_needs_each_of_its_rights(case: ApiCase, tmp_path: Path) -> None:
    async with guarded_server(tmp_path) as at:
        before = at.snapshot()
        fields = {"timeout": _SECOND, **case.fields(at)}
        reported = await at.ask(case.key, case.version, **fields)
        assert codes(reported) & DENIALS == case.denied
        for missing in case.rights:
            at.grant(*(right for right in case.rights if right != missing))
            reported = await at.ask(case.key, case.version, **fields)
            assert codes(reported) & DENIALS, f"without {missing}"
            if missing[0] != Op.DESCRIBE_CONFIGS:
                assert at.snapshot() == before
        at.grant(*case.rights)
        reported = await at.ask(case.key, case.version, **fields)
        assert not codes(reported) & DENIALS


async def test_old_log_directories_have_no_field_for_the_error(tmp_path: Path) -> None:
    async with guarded_server(tmp_path) as at:
        assert (await at.ask(35, 1, topics=None)).results == ()
        at.grant(on_cluster(Op.DESCRIBE))
        assert (await at.ask(35, 1, topics=None)).results


async def test_lists_show_only_what_the_client_may_describe(tmp_path: Path) -> None:
    async with guarded_server(tmp_path) as at:
        await at.server.broker.topics.create("third")

        async def topics() -> set[str]:
            by_metadata = {topic.name for topic in (await at.ask(3, 9, topics=None)).topics}
            paged = await at.ask(75, 0, topics=(), response_partition_limit=100, cursor=None)
            assert {topic.name for topic in paged.topics} == by_metadata
            return by_metadata

        assert await topics() == set()
        at.grant(on_topic(Op.READ), on_topic(Op.DESCRIBE, "other"))
        assert await topics() == {"orders", "other"}
        at.grant(on_topic(Op.WRITE, "third"))  # cached responses of other rights are not used
        assert await topics() == {"third"}
        assert (await at.ask(16, 4)).groups == ()
        at.grant(on_group(Op.READ))
        assert [group.group_id for group in (await at.ask(16, 4)).groups] == ["g"]
        at.grant(on_cluster(Op.DESCRIBE))
        assert [group.group_id for group in (await at.ask(16, 4)).groups] == ["g"]
        assert (await at.ask(66, 0)).transaction_states == ()
        at.grant(on_transaction(Op.DESCRIBE))
        assert [each.transactional_id for each in (await at.ask(66, 0)).transaction_states] == ["tx"]


async def test_offsets_of_all_topics_leave_out_those_of_others(tmp_path: Path) -> None:
    async with guarded_server(tmp_path) as at:
        group = at.part(9, 8, "OffsetFetchRequestGroup", group_id="g", topics=None)
        at.grant(on_group(Op.DESCRIBE))
        reported = (await at.ask(9, 8, groups=(group,))).groups[0]
        assert (reported.error_code, reported.topics) == (0, ())
        at.grant(on_group(Op.DESCRIBE), on_topic(Op.DESCRIBE))
        reported = (await at.ask(9, 8, groups=(group,))).groups[0]
        assert [(topic.name, topic.partitions[0].committed_offset) for topic in reported.topics] == [("orders", 1)]


async def test_missing_topics_are_created_only_with_the_right_to(tmp_path: Path) -> None:
    async with guarded_server(tmp_path) as at:

        async def asked(name: str) -> int:
            topics = (at.part(3, 9, "MetadataRequestTopic", name=name),)
            reported = await at.ask(3, 9, topics=topics, allow_auto_topic_creation=True)
            return int(reported.topics[0].error_code)

        names = ("new-1", "new-2", "new-3")
        describe = [on_topic(Op.DESCRIBE, name) for name in names]
        assert await asked("new-1") == TOPIC
        at.grant(*describe)
        assert await asked("new-1") == TOPIC
        assert at.server.broker.view.topic("new-1") is None
        at.grant(*describe, on_topic(Op.CREATE, "new-2"))
        assert await asked("new-2") == 0
        at.grant(*describe, on_cluster(Op.CREATE))
        assert await asked("new-3") == 0
        at.grant(on_cluster(Op.CREATE))
        assert await asked("new-4") == TOPIC
        assert {topic.name for topic in at.server.broker.view.topics()} >= {"new-2", "new-3"}
        assert at.server.broker.view.topic("new-4") is None


async def test_create_topics_by_a_right_on_the_cluster_hides_settings(tmp_path: Path) -> None:
    async with guarded_server(tmp_path) as at:
        at.grant(on_cluster(Op.CREATE))
        topic = at.part(19, 7, "CreatableTopic", name="new", num_partitions=1, replication_factor=1)
        [reported] = (await at.ask(19, 7, topics=(topic,))).topics
        assert (reported.error_code, reported.topic_config_error_code, reported.num_partitions) == (0, TOPIC, -1)
        assert not reported.configs


async def test_an_id_does_not_reveal_the_name(tmp_path: Path) -> None:
    async with guarded_server(tmp_path) as at:
        topics = (at.part(3, 12, "MetadataRequestTopic", topic_id=at.topic_id, name=None),)
        assert [topic.name for topic in (await at.ask(3, 12, topics=topics)).topics] == [None]
        gone = (at.part(20, 6, "DeleteTopicState", name=None, topic_id=at.topic_id),)
        assert [each.name for each in (await at.ask(20, 6, topics=gone, timeout=_SECOND)).responses] == [None]
        at.grant(on_topic(Op.DESCRIBE))
        assert [each.name for each in (await at.ask(20, 6, topics=gone, timeout=_SECOND)).responses] == ["orders"]


async def test_authorized_operations_are_those_of_the_client(tmp_path: Path) -> None:
    async with guarded_server(tmp_path) as at:
        at.grant(on_topic(Op.READ), on_group(Op.READ), on_cluster(Op.ALTER))
        topics = (at.part(3, 9, "MetadataRequestTopic", name="orders"),)
        asked = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
        reported = await at.ask(3, 9, topics=topics, **asked)
        read, alter = 1 << Op.READ | 1 << Op.DESCRIBE, 1 << Op.ALTER | 1 << Op.DESCRIBE
        assert reported.topics[0].topic_authorized_operations == read
        assert reported.cluster_authorized_operations == alter
        cluster = await at.ask(60, 0, include_cluster_authorized_operations=True)
        assert cluster.cluster_authorized_operations == alter
        group = await at.ask(15, 5, groups=("g",), include_authorized_operations=True)
        assert group.groups[0].authorized_operations == read
        paged = await at.ask(75, 0, topics=(at.part(75, 0, "TopicRequest", name="orders"),))
        assert paged.topics[0].topic_authorized_operations == read
        at.grant()
        reported = await at.ask(3, 9, topics=(), **asked)
        assert reported.cluster_authorized_operations == 0
        assert (await at.ask(60, 0, include_cluster_authorized_operations=True)).cluster_authorized_operations == 0
        group = await at.ask(15, 5, groups=("g",), include_authorized_operations=True)
        assert (group.groups[0].error_code, group.groups[0].authorized_operations) == (GROUP, -(2**31))


async def test_a_described_group_must_have_no_topics_of_others(tmp_path: Path) -> None:
    async with guarded_server(tmp_path) as at:
        subscription = {"subscribed_topic_names": ("orders",), "topic_partitions": ()}
        member = {"group_id": "g848", "member_id": "m", "rebalance_timeout": 10 * _SECOND, **subscription}
        at.grant(on_group(Op.READ, "g848"), on_topic(Op.DESCRIBE))
        assert (await at.ask(68, 1, **member)).error_code == 0
        reported = await at.ask(69, 1, group_ids=("g848",), include_authorized_operations=True)
        assert reported.groups[0].error_code == 0
        assert reported.groups[0].authorized_operations == 1 << Op.READ | 1 << Op.DESCRIBE
        at.grant(on_group(Op.READ, "g848"))
        reported = await at.ask(69, 1, group_ids=("g848",))
        assert (reported.groups[0].error_code, reported.groups[0].members) == (TOPIC, ())


async def test_a_described_share_group_must_have_no_topics_of_others(tmp_path: Path) -> None:
    async with guarded_server(tmp_path) as at:
        member = {"group_id": "shared", "member_id": "m", "subscribed_topic_names": ("orders",)}
        at.grant(on_group(Op.READ, "shared"), on_topic(Op.DESCRIBE))
        assert (await at.ask(76, 1, **member)).error_code == 0
        reported = await at.ask(77, 1, group_ids=("shared",))
        assert (reported.groups[0].error_code, reported.groups[0].group_state) == (0, "Stable")
        at.grant(on_group(Op.READ, "shared"))
        reported = await at.ask(77, 1, group_ids=("shared",))
        assert (reported.groups[0].error_code, reported.groups[0].members) == (TOPIC, ())


async def test_topics_of_a_transaction_are_shown_to_users_that_may_describe_them(tmp_path: Path) -> None:
    async with guarded_server(tmp_path) as at:
        at.grant(WRITE_TRANSACTION, on_topic(Op.WRITE))
        await at.ask(24, 3, **_added(at))
        reported = await at.ask(65, 0, transactional_ids=("tx",))
        assert [topic.topic for topic in reported.transaction_states[0].topics] == ["orders"]
        at.grant(WRITE_TRANSACTION)
        reported = await at.ask(65, 0, transactional_ids=("tx",))
        assert reported.transaction_states[0].topics == ()


async def test_a_fetch_that_waits_ends_with_the_right_to_read(tmp_path: Path) -> None:
    """A client chooses how long it waits, so it could read what is written long after its right was revoked."""
    async with guarded_server(tmp_path) as guarded:
        partition = guarded.server.broker.view.partition("orders", 0)
        guarded.grant(on_topic(Op.READ))
        wanted = fetch_fields(12, "orders", {0: partition.log_end_offset}, max_wait_ms=60_000)
        waiting = asyncio.create_task(guarded.ask(1, 12, **wanted))
        producer = await RawClient.connect(guarded.server)
        await eventually_async(lambda: len(partition._replica.waiters))
        guarded.grant(on_topic(Op.WRITE))
        await producer.ask(0, 9, **produce_fields(9, "orders", 0, batch(b"after")))
        answer = await waiting
        await producer.close()
        [part] = answer.responses[0].partitions
        assert part.error_code == TOPIC
        assert not part.records


async def test_one_topic_of_a_request_does_not_refuse_the_others(tmp_path: Path) -> None:
    async with guarded_server(tmp_path) as at:
        at.grant(on_topic(Op.READ), on_topic(Op.WRITE), on_group(Op.READ))
        mine, other = commit_fields(8, "g", "orders"), commit_fields(8, "g", "other")
        reported = await at.ask(8, 8, **{**mine, "topics": mine["topics"] + other["topics"]})
        assert [topic.partitions[0].error_code for topic in reported.topics] == [0, TOPIC]
        mine, other = produce_fields(9, "orders", 0, batch(b"x")), produce_fields(9, "other", 0, batch(b"x"))
        reported = await at.ask(0, 9, **{**mine, "topic_data": mine["topic_data"] + other["topic_data"]})
        assert [topic.partition_responses[0].error_code for topic in reported.responses] == [0, TOPIC]
        mine, other = fetch_fields(11, "orders", {0: 0}), fetch_fields(11, "other", {0: 0})
        reported = await at.ask(1, 11, **{**mine, "topics": mine["topics"] + other["topics"]})
        assert {topic.topic: topic.partitions[0].error_code for topic in reported.responses} == {
            "orders": 0,
            "other": TOPIC,
        }


async def test_acknowledging_needs_the_right_to_read_the_topic(tmp_path: Path) -> None:
    async with guarded_server(tmp_path) as at:
        at.grant(on_group(Op.READ), on_topic(Op.READ))
        await at.ask(78, 2, **_share_fetch(at))
        at.grant(on_group(Op.READ))
        batch_of = at.part(79, 2, "AcknowledgementBatch", first_offset=0, last_offset=0, acknowledge_types=(1,))
        part = {"partition_index": 0, "acknowledgement_batches": (batch_of,)}
        topics = _nested(79, 2, "AcknowledgeTopic", "AcknowledgePartition", part)(at)["topics"]
        reported = await at.ask(79, 2, group_id="g", member_id="m", share_session_epoch=1, topics=topics)
        assert reported.responses[0].partitions[0].error_code == TOPIC


SHARE_OFFSETS = [
    ApiCase(90, 1, _share_offsets, {GROUP}, (on_group(Op.DESCRIBE, "shared"), on_topic(Op.DESCRIBE))),
    ApiCase(91, 0, _altered_share_offsets, {GROUP}, (on_group(Op.READ, "shared"), on_topic(Op.READ))),
    ApiCase(92, 0, _deleted_share_offsets, {GROUP}, (on_group(Op.DELETE, "shared"), on_topic(Op.READ))),
]


@pytest.mark.parametrize("case", SHARE_OFFSETS, ids=_name)
async def test_offsets_of_a_share_group_need_each_right(case: ApiCase, tmp_path: Path) -> None:
    async with guarded_server(tmp_path) as at:
        at.grant(on_group(Op.READ, "shared"), on_topic(Op.DESCRIBE))
        member = {"group_id": "shared", "member_id": "m"}
        assert (await at.ask(76, 1, **member, subscribed_topic_names=("orders",))).error_code == 0
        assert (await at.ask(76, 1, **member, member_epoch=-1)).error_code == 0
        for missing in case.rights:
            at.grant(*(right for right in case.rights if right != missing))
            reported = await at.ask(case.key, case.version, **case.fields(at))
            assert codes(reported) & DENIALS, f"without {missing}"
        at.grant(*case.rights)
        assert not codes(await at.ask(case.key, case.version, **case.fields(at)))


async def test_share_state_is_for_brokers(tmp_path: Path) -> None:
    async with guarded_server(tmp_path) as at:
        at.grant(on_cluster(Op.ALL), on_group(Op.ALL), on_topic(Op.ALL))
        for key, kind in ((83, "Initialize"), (84, "Read"), (85, "Write"), (86, "Delete"), (87, "ReadState")):
            name = f"{kind}StateData" if key != 87 else "ReadStateSummaryData"
            topics = _nested(key, 0, name, "PartitionData", {"partition": 0})(at)["topics"]
            reported = await at.ask(key, 0, group_id="g", topics=topics)
            assert codes(reported) == {CLUSTER}


async def test_login_and_versions_need_no_rights(tmp_path: Path) -> None:
    async with guarded_server(tmp_path) as at:
        assert not codes(await at.ask(18, 3)) & DENIALS
        assert not codes(await at.ask(17, 1, mechanism="PLAIN")) & DENIALS
        assert not codes(await at.ask(60, 0)) & DENIALS


async def test_only_brokers_write_markers_and_fetch_as_replicas(tmp_path: Path) -> None:
    async with guarded_server(tmp_path) as at:
        at.grant(on_cluster(Op.ALL), on_topic(Op.ALL), WRITE_TRANSACTION)
        topics = (at.part(27, 1, "WritableTxnMarkerTopic", name="orders", partition_indexes=(0,)),)
        marker = at.part(27, 1, "WritableTxnMarker", producer_id=1, producer_epoch=0, topics=topics)
        assert codes(await at.ask(27, 1, markers=(marker,))) == {CLUSTER}
        assert codes(await at.ask(24, 4, transactions=())) == {CLUSTER}
        reported = await at.ask(1, 11, **{**fetch_fields(11, "orders", {0: 0}), "replica_id": 1})
        assert reported.error_code == CLUSTER


def test_every_api_has_a_row() -> None:
    missing = [api.name for api in standard_table().listed() if api.key not in AUTHORIZATION]
    assert not missing, f"add a row to servers/kafka/authorization_table.py for {missing}"


def test_every_row_says_what_it_checks_or_why_it_checks_nothing() -> None:
    assert [key for key, row in AUTHORIZATION.items() if not row.rights and not row.note] == []


def test_every_row_is_checked_by_its_handler() -> None:
    """Runs last: it compares with the checks that the tests above have recorded."""
    served = {api.key for api in standard_table().listed()}
    if {case.key for case in CASES} - {key for key, *_ in RECORDED}:
        pytest.skip("only with the other tests of this file in the same process")
    listed = {(key, right.operation, right.resource_type) for key, row in AUTHORIZATION.items() for right in row.rights}
    assert {check for check in listed if check[0] in served} == RECORDED


def test_every_api_is_audited_or_has_a_reason() -> None:
    listed = [*AUDITED, *AUDITED_IN_CLUSTERS, *READING, *LOGIN, *TRAFFIC]
    assert sorted(listed) == sorted(api.key for api in standard_table().listed())


def test_every_change_is_audited() -> None:
    """Runs last, too: it compares with the changes that the tests above have made."""
    if {case.key for case in CASES} - {key for key, *_ in RECORDED}:
        pytest.skip("only with the other tests of this file in the same process")
    assert {change for change in CHANGED if change[0] not in AUDITED_IN_CLUSTERS} == set(AUDITED.items())
