"""A user who is logged in tries to do more than its ACLs allow. Mallory has rights on `mal` and nothing of a victim."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest
from tests.hostile.frames import Peer
from tests.hostile.secured import (
    CLUSTER_RESOURCE,
    DENY,
    GROUP_RESOURCE,
    PREFIXED,
    TRANSACTION_RESOURCE,
    SecuredBroker,
    secret,
    secured_broker,
)
from tests.support.guarded_server import DENIALS, codes
from tests.support.kafka_server import batch

TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, TRANSACTION_DENIED = 29, 30, 31, 53
UNKNOWN_TOPIC, INVALID_TOPIC, UNKNOWN_TOPIC_ID, INVALID_REQUEST = 3, 17, 100, 42
INVALID_RECORD = 87
CONTENT = secret("record")
"""What the victim's topic holds: no response to mallory may have it."""

Fields = dict[str, Any]
ANY_ACL: Fields = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
EVERYTHING: Fields = {
    "resource_type": 2,
    "resource_name": "*",
    "resource_pattern_type": 3,
    "principal": "User:mallory",
    "host": "*",
    "operation": 2,
    "permission_type": 3,
}


class Stage(NamedTuple):
    """What attacks need: the broker, mallory's connection, and the ids of the victim."""

    broker: SecuredBroker
    mallory: Peer
    topic_id: uuid.UUID
    producer_id: int
    producer_epoch: int


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with secured_broker() as broker:
        for name in ("victim", "shared", "mal", "mal.own", "mal.denied"):
            broker.create_topic(name)
        for operation in ("READ", "WRITE"):
            broker.grant("mallory", operation, "mal")
            broker.grant("mallory", operation, "shared")
        broker.grant("mallory", "ALL", "mal.", pattern=PREFIXED)
        broker.grant("mallory", "ALL", "mal.denied", permission=DENY)
        broker.grant("mallory", "ALL", "elsewhere", host="10.1.2.3")
        broker.grant("mallory", "READ", "mal-group", kind=GROUP_RESOURCE)
        broker.grant("mallory", "WRITE", "mal-tx", kind=TRANSACTION_RESOURCE)
        with broker.logged_in("admin") as admin:
            producer = admin.ask(
                22, 4, {"transactional_id": "victim-tx", "transaction_timeout": 60_000, "producer_id": -1}
            )
            assert not producer.error_code
            ids = producer.producer_id, producer.producer_epoch
            assert not codes(produce(admin, "victim", batch(CONTENT.encode())))
            for group, topic in (("victim-group", "victim"), ("mal-group", "mal")):
                assert not codes(admin.ask(*commit(group, topic)))
            added = admin.ask(24, 3, transaction("victim-tx", ids, "shared"))
            assert not codes(added)
            metadata = admin.ask(3, 12, {"topics": [{"name": "victim"}]})
        before = broker.state()
        with broker.watched(), broker.logged_in("mallory") as mallory:
            yield Stage(broker, mallory, metadata.topics[0].topic_id, *ids)
        assert broker.state() == before
        with broker.logged_in("admin") as admin:
            assert committed(admin, "victim-group", "victim") == 5
            assert (
                admin.ask(65, 0, {"transactional_ids": ["victim-tx"]}).transaction_states[0].transaction_state
                == "Ongoing"
            )
        assert '"level": "error"' not in broker.log_text()


def produce(peer: Peer, topic: str, records: bytes, transactional_id: str | None = None) -> Any:
    topics = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
    fields = {"transactional_id": transactional_id, "acks": -1, "timeout": 5_000, "topic_data": topics}
    return peer.ask(0, 9, fields)


def commit(group: str, topic: str, offset: int = 5) -> tuple[int, int, Fields]:
    topics = [{"name": topic, "partitions": [{"partition_index": 0, "committed_offset": offset}]}]
    return (
        8,
        7,
        {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "generation_id": -1,
            "member_id": "",
            "topics": topics,
        },
    )


def committed(peer: Peer, group: str, topic: str) -> int:
    topics = [{"name": topic, "partition_indexes": [0]}]
    answer = peer.ask(9, 8, {"groups": [{"group_id": group, "topics": topics}]})
    return int(answer.groups[0].topics[0].partitions[0].committed_offset)


def transaction(name: str, producer: tuple[int, int], topic: str) -> Fields:
    return {
        "v3_and_below_transactional_id": name,
        "v3_and_below_producer_id": producer[0],
        "v3_and_below_producer_epoch": producer[1],
        "v3_and_below_topics": [{"name": topic, "partitions": [0]}],
    }


def fetch(topic: str, **more: Any) -> tuple[int, int, Fields]:
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}]
    fields = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_epoch": -1}
    return 1, 12, {**fields, "topics": [{"topic": topic, "partitions": partitions}], **more}


def fetch_by_id(topic_id: uuid.UUID) -> tuple[int, int, Fields]:
    key, _, fields = fetch("")
    return key, 13, {**fields, "topics": [{**fields["topics"][0], "topic_id": topic_id}]}


def offsets(topic: str, **more: Any) -> tuple[int, int, Fields]:
    partitions = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]
    return 2, 7, {"replica_id": -1, "topics": [{"name": topic, "partitions": partitions}], **more}


def epochs(topic: str, **more: Any) -> tuple[int, int, Fields]:
    partitions = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]
    return 23, 4, {"replica_id": -1, "topics": [{"topic": topic, "partitions": partitions}], **more}


def join(group: str, member: str = "") -> tuple[int, int, Fields]:
    fields = {"session_timeout": 10_000, "rebalance_timeout": 10_000, "member_id": member, "protocol_type": "consumer"}
    return 11, 5, {"group_id": group, **fields, "protocols": [{"name": "range", "metadata": b""}]}


def in_transaction(at: Stage, name: str, group: str) -> Fields:
    ids = {"producer_id": at.producer_id, "producer_epoch": at.producer_epoch}
    return {"transactional_id": name, **ids, "group_id": group}


def resource(kind: int, name: str, setting: str, value: str) -> Fields:
    config = {"name": setting, "config_operation": 0, "value": value}
    return {"resources": [{"resource_type": kind, "resource_name": name, "configs": [config]}]}


Attack = Callable[[Stage], tuple[int, int, Fields]]
T, G, C, X = {TOPIC_DENIED}, {GROUP_DENIED}, {CLUSTER_DENIED}, {TRANSACTION_DENIED}
SCRAM_OF_ADMIN = {"name": "admin", "mechanism": 1, "iterations": 4096, "salt": b"s" * 16, "salted_password": b"p" * 32}
PART = [{"name": "victim", "partitions": [{"partition_index": 0, "offset": -1}]}]
REFUSED: dict[str, tuple[Attack, set[int]]] = {
    "read": (lambda _: fetch("victim"), T),
    "read by id": (lambda at: fetch_by_id(at.topic_id), {TOPIC_DENIED, UNKNOWN_TOPIC_ID}),
    "find offsets": (lambda _: offsets("victim"), T),
    "find epochs": (lambda _: epochs("victim"), T),
    "describe": (lambda _: (3, 12, {"topics": [{"name": "victim"}]}), T),
    "describe by id": (
        lambda at: (3, 12, {"topics": [{"topic_id": at.topic_id, "name": None}]}),
        {TOPIC_DENIED, UNKNOWN_TOPIC_ID},
    ),
    "describe partitions": (lambda _: (75, 0, {"topics": [{"name": "victim"}], "response_partition_limit": 10}), T),
    "describe producers": (lambda _: (61, 0, {"topics": [{"name": "victim", "partition_indexes": [0]}]}), T),
    "describe settings": (
        lambda _: (32, 4, {"resources": [{"resource_type": 2, "resource_name": "victim", "configuration_keys": None}]}),
        T,
    ),
    "describe settings of the broker": (
        lambda _: (32, 4, {"resources": [{"resource_type": 4, "resource_name": "0", "configuration_keys": None}]}),
        C,
    ),
    "change settings": (lambda _: (44, 1, resource(2, "victim", "retention.ms", "1")), T),
    "change settings the old way": (lambda _: (33, 2, resource(2, "victim", "retention.ms", "1")), T),
    "change settings of the broker": (lambda _: (44, 1, resource(4, "", "super.users", "User:mallory")), C),
    "switch off the authorizer": (lambda _: (44, 1, resource(4, "", "authorizer", "none")), C),
    "delete": (lambda _: (20, 6, {"topics": [{"name": "victim"}], "timeout": 1_000}), T),
    "delete by id": (
        lambda at: (20, 6, {"topics": [{"name": None, "topic_id": at.topic_id}], "timeout": 1_000}),
        {TOPIC_DENIED, UNKNOWN_TOPIC_ID},
    ),
    "delete records": (lambda _: (21, 2, {"topics": PART, "timeout": 1_000}), T),
    "add partitions": (lambda _: (37, 3, {"topics": [{"name": "victim", "count": 3}], "timeout": 1_000}), T),
    "create": (
        lambda _: (
            19,
            5,
            {"topics": [{"name": "evil", "num_partitions": 1, "replication_factor": 1}], "timeout": 1_000},
        ),
        T,
    ),
    "create by metadata": (lambda _: (3, 12, {"topics": [{"name": "evil"}], "allow_auto_topic_creation": True}), T),
    "commit offsets": (lambda _: commit("victim-group", "victim", 0), G),
    "commit offsets of a topic": (lambda _: commit("mal-group", "victim"), T),
    "read offsets": (
        lambda _: (
            9,
            8,
            {"groups": [{"group_id": "victim-group", "topics": [{"name": "victim", "partition_indexes": [0]}]}]},
        ),
        G,
    ),
    "read all offsets": (lambda _: (9, 8, {"groups": [{"group_id": "victim-group", "topics": None}]}), G),
    "delete offsets": (
        lambda _: (
            47,
            0,
            {"group_id": "victim-group", "topics": [{"name": "mal", "partitions": [{"partition_index": 0}]}]},
        ),
        G,
    ),
    "find the coordinator": (lambda _: (10, 4, {"key_type": 0, "coordinator_keys": ["victim-group"]}), G),
    "find the coordinator of a transaction": (
        lambda _: (10, 4, {"key_type": 1, "coordinator_keys": ["victim-tx"]}),
        X,
    ),
    "join": (lambda _: join("victim-group"), G),
    "join as another": (lambda _: join("victim-group", "member"), G),
    "heartbeat": (lambda _: (12, 4, {"group_id": "victim-group", "generation_id": 1, "member_id": "m"}), G),
    "leave": (lambda _: (13, 5, {"group_id": "victim-group", "members": [{"member_id": "m"}]}), G),
    "sync": (lambda _: (14, 5, {"group_id": "victim-group", "generation_id": 1, "member_id": "m"}), G),
    "describe the group": (lambda _: (15, 5, {"groups": ["victim-group"]}), G),
    "describe the new group": (lambda _: (69, 0, {"group_ids": ["victim-group"]}), G),
    "delete the group": (lambda _: (42, 2, {"groups_names": ["victim-group"]}), G),
    "heartbeat of a new member": (
        lambda _: (68, 0, {"group_id": "victim-group", "member_id": "", "member_epoch": 0, "rebalance_timeout": 1_000}),
        G,
    ),
    "subscribe": (
        lambda _: (
            68,
            0,
            {
                "group_id": "mal-group",
                "member_id": "",
                "member_epoch": 0,
                "rebalance_timeout": 1_000,
                "subscribed_topic_names": ["victim"],
                "topic_partitions": [],
            },
        ),
        T,
    ),
    "take over a producer": (
        lambda _: (22, 4, {"transactional_id": "victim-tx", "transaction_timeout": 1_000, "producer_id": -1}),
        X,
    ),
    "join a transaction": (lambda at: (24, 3, transaction("victim-tx", at[3:], "mal")), X),
    "add a topic to a transaction": (lambda at: (24, 3, transaction("mal-tx", at[3:], "victim")), T),
    "add a group to a transaction": (lambda at: (25, 3, in_transaction(at, "mal-tx", "victim-group")), G),
    "add offsets to a transaction": (lambda at: (25, 3, in_transaction(at, "victim-tx", "mal-group")), X),
    "abort a transaction": (lambda at: (26, 3, {**in_transaction(at, "victim-tx", ""), "committed": False}), X),
    "commit a transaction": (lambda at: (26, 3, {**in_transaction(at, "victim-tx", ""), "committed": True}), X),
    "commit offsets in a transaction": (
        lambda at: (
            28,
            3,
            {
                **in_transaction(at, "mal-tx", "victim-group"),
                "topics": [{"name": "mal", "partitions": [{"partition_index": 0, "committed_offset": 1}]}],
            },
        ),
        G,
    ),
    "describe a transaction": (lambda _: (65, 0, {"transactional_ids": ["victim-tx"]}), X),
    "write markers": (
        lambda at: (
            27,
            1,
            {
                "markers": [
                    {
                        "producer_id": at.producer_id,
                        "producer_epoch": at.producer_epoch,
                        "transaction_result": True,
                        "topics": [{"name": "shared", "partition_indexes": [0]}],
                    }
                ]
            },
        ),
        C,
    ),
    "verify as a broker": (
        lambda at: (
            24,
            4,
            {
                "transactions": [
                    {
                        "transactional_id": "mal-tx",
                        "producer_id": at.producer_id,
                        "producer_epoch": at.producer_epoch,
                        "verify_only": True,
                        "topics": [{"name": "mal", "partitions": [0]}],
                    }
                ]
            },
        ),
        C,
    ),
    "list ACLs": (lambda _: (29, 3, ANY_ACL), C),
    "add an ACL": (lambda _: (30, 3, {"creations": [EVERYTHING]}), C),
    "delete ACLs": (lambda _: (31, 3, {"filters": [ANY_ACL]}), C),
    "list users": (lambda _: (50, 0, {"users": None}), C),
    "set the password of another": (lambda _: (51, 0, {"deletions": [], "upsertions": [SCRAM_OF_ADMIN]}), C),
    "set the own password": (
        lambda _: (51, 0, {"deletions": [], "upsertions": [{**SCRAM_OF_ADMIN, "name": "mallory"}]}),
        C,
    ),
    "delete a user": (lambda _: (51, 0, {"deletions": [{"name": "admin", "mechanism": 1}], "upsertions": []}), C),
    "describe log directories": (lambda _: (35, 4, {"topics": None}), C),
    "elect leaders": (lambda _: (43, 2, {"election_type": 1, "topic_partitions": None, "timeout": 1_000}), C),
    "reassign": (
        lambda _: (45, 0, {"topics": [{"name": "victim", "partitions": [{"partition_index": 0, "replicas": [9]}]}]}),
        C,
    ),
    "list reassignments": (lambda _: (46, 0, {"topics": None}), C),
    "unregister a broker": (lambda _: (64, 0, {"broker_id": 0}), C),
}


def answered(at: Stage, key: int, version: int, fields: Mapping[str, Any]) -> Any:
    """The response to mallory. It never has the victim's records."""
    answer = at.mallory.ask(key, version, fields)
    assert CONTENT not in str(answer)
    return answer


@pytest.mark.parametrize("attack", REFUSED)
def test_an_api_is_refused(stage: Stage, attack: str) -> None:
    make, expected = REFUSED[attack]
    found = codes(answered(stage, *make(stage)))
    assert found
    assert found <= expected, found


def test_the_rights_of_mallory_count(stage: Stage) -> None:
    """Otherwise everything above could be refused for another reason."""
    for topic in ("mal", "mal.own", "shared"):
        assert not codes(produce(stage.mallory, topic, batch(b"x")))
        assert not codes(stage.mallory.ask(*fetch(topic)))
    assert not codes(stage.mallory.ask(*commit("mal-group", "mal")))


NAMES = [
    "victim.",
    "victim..",
    "Victim",
    "VICTIM",
    " victim",
    "victim ",
    "victim\0",
    "victim\n",
    "./victim",
    "../victim",
    "victim/",
    "mal/../victim",
    "mal./../victim",
    "vic*",
    "*",
    "**",
    ".*",
    "mal.denied",
    "mal.denied ",
    "MAL",
    "Mal",
    "ma",
    "malx",
    "mal\u200b",
    "m\u0430l",
    "%6dal",
    "mal,victim",
    "mal;victim",
    "",
    ".",
    "..",
    "a" * 250,
    "elsewhere",
    "__consumer_offsets",
    "__transaction_state",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_not_another_name(stage: Stage, name: str) -> None:
    """Records can be neither read nor written, and no topic is created."""
    for answer in (
        answered(stage, *fetch(name)),
        produce(stage.mallory, name, batch(b"x")),
        answered(stage, 3, 12, {"topics": [{"name": name}], "allow_auto_topic_creation": True}),
        answered(stage, *offsets(name)),
    ):
        missing = {UNKNOWN_TOPIC} if name.startswith("mal.") else set()
        assert codes(answer) & {TOPIC_DENIED, INVALID_TOPIC, *missing}, answer


@pytest.mark.parametrize(
    "name", ["mal-group ", "MAL-GROUP", "mal-grou", "mal-groupx", "*", "mal-group\0", "victim-group"]
)
def test_a_group_is_not_another_group(stage: Stage, name: str) -> None:
    for request in (commit(name, "mal"), join(name), (12, 4, {"group_id": name, "generation_id": 0, "member_id": "m"})):
        assert codes(answered(stage, *request)) == {GROUP_DENIED}


@pytest.mark.parametrize("name", ["mal-tx ", "MAL-TX", "mal-t", "mal-txx", "*", "victim-tx"])
def test_a_transactional_id_is_not_another(stage: Stage, name: str) -> None:
    fields = {"transactional_id": name, "transaction_timeout": 1_000, "producer_id": -1}
    assert codes(answered(stage, 22, 4, fields)) == {TRANSACTION_DENIED}


def test_lists_leave_out_what_mallory_may_not_see(stage: Stage) -> None:
    topics = answered(stage, 3, 12, {"topics": None}).topics
    assert {each.name for each in topics} <= {"mal", "mal.own", "shared"}
    assert "victim" not in str(answered(stage, 16, 4, {"states_filter": []}))
    assert "victim" not in str(answered(stage, 66, 1, {"state_filters": [], "producer_id_filters": []}))
    assert "victim" not in str(answered(stage, 75, 0, {"topics": [], "response_partition_limit": 1_000}))
    assert "victim" not in str(answered(stage, 9, 8, {"groups": [{"group_id": "mal-group", "topics": None}]}))


def test_a_pattern_selects_nothing_that_mallory_may_not_see(stage: Stage) -> None:
    member: Fields = {
        "group_id": "mal-group",
        "member_id": str(uuid.uuid4()),
        "member_epoch": 0,
        "rebalance_timeout": 30_000,
        "subscribed_topic_names": [],
        "subscribed_topic_regex": ".*",
        "topic_partitions": [],
    }
    joined = answered(stage, 68, 1, member)
    answered(stage, 68, 1, {**member, "member_epoch": -1})
    assert not joined.error_code, joined
    seen = {each.topic_id for each in answered(stage, 3, 12, {"topics": None}).topics}
    assigned = {each.topic_id for each in joined.assignment.topic_partitions}
    assert stage.topic_id not in assigned
    assert assigned == seen


def test_a_refusal_does_not_say_whether_a_topic_exists(stage: Stage) -> None:
    for make in (fetch, offsets, epochs):
        there, missing = answered(stage, *make("victim")), answered(stage, *make("no-such-topic"))
        assert codes(there) == codes(missing) == T


def test_an_id_does_not_say_a_name(stage: Stage) -> None:
    metadata = answered(stage, 3, 12, {"topics": [{"topic_id": stage.topic_id, "name": None}]})
    assert "victim" not in str(metadata)
    deleted = answered(stage, 20, 6, {"topics": [{"name": None, "topic_id": stage.topic_id}], "timeout": 1_000})
    assert "victim" not in str(deleted)


def test_the_producer_of_another_cannot_be_used(stage: Stage) -> None:
    """Mallory may write to the topic and has a transactional id of its own, but the producer id is the victim's."""
    ids: dict[str, Any] = {"producer_id": stage.producer_id, "producer_epoch": stage.producer_epoch, "base_sequence": 0}
    answer = produce(stage.mallory, "shared", batch(b"x", transactional=True, **ids), "mal-tx")
    assert codes(answer), "a record was written into the transaction of another user"
    ended = stage.mallory.ask(26, 3, {**in_transaction(stage, "mal-tx", ""), "committed": True})
    assert codes(ended)


def test_a_transactional_batch_without_its_id_is_refused(stage: Stage) -> None:
    ids: dict[str, Any] = {"producer_id": stage.producer_id, "producer_epoch": stage.producer_epoch, "base_sequence": 0}
    assert codes(produce(stage.mallory, "shared", batch(b"x", transactional=True, **ids)))


@pytest.mark.parametrize("user", ["mallory", "admin"])
@pytest.mark.parametrize("api", ["Fetch", "ListOffsets", "OffsetForLeaderEpoch", "Fetch of a debugger"])
def test_no_client_fetches_as_a_replica(stage: Stage, user: str, api: str) -> None:
    """A super user is no broker: a fetch as a follower could move the high watermark (CVE-2018-1288)."""
    made = {
        "Fetch": fetch("shared", replica_id=1, max_wait=1_000),
        "Fetch of a debugger": fetch("shared", replica_id=-2),
        "ListOffsets": offsets("shared", replica_id=1),
        "OffsetForLeaderEpoch": epochs("shared", replica_id=1),
    }
    with stage.broker.logged_in(user) as peer:
        answer = peer.ask(*made[api])
    if api == "Fetch":
        assert codes(answer) == C
    else:
        assert codes(answer) <= C | {INVALID_REQUEST}


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "__share_group_state", "__pipelines"])
def test_internal_topics_are_not_written_to(stage: Stage, topic: str) -> None:
    """Not by a super user either: a forged record would be state of groups and transactions."""
    with stage.broker.logged_in("admin") as admin:
        refusals = {INVALID_TOPIC, TOPIC_DENIED, UNKNOWN_TOPIC, INVALID_RECORD}
        assert codes(produce(admin, topic, batch(b"forged"))) & refusals
        deleted = admin.ask(20, 5, {"topic_names": [topic], "timeout": 1_000})
        assert codes(deleted), deleted
        created = {"name": topic, "num_partitions": 1, "replication_factor": 1}
        assert codes(admin.ask(19, 5, {"topics": [created], "timeout": 1_000}))


def test_markers_are_for_brokers_only(stage: Stage) -> None:
    with stage.broker.logged_in("admin") as admin:
        make, _ = REFUSED["write markers"]
        assert codes(admin.ask(*make(stage))) == C


SETTINGS = {
    "authorizer": "none",
    "super.users": "User:mallory",
    "allow.everyone.if.no.acl.found": "true",
    "allow.anonymous": "true",
    "listeners": "PLAINTEXT://0.0.0.0:0",
    "listener.security.protocol.map": "LOGIN:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.oauthbearer.jwks.endpoint.url": "http://127.0.0.1:1/",
    "ssl.truststore.location": "/etc/ssl/certs/ca-certificates.crt",
    "ssl.keystore.location": "/etc/passwd",
    "ssl.client.auth": "none",
    "ssl.principal.mapping.rules": "RULE:.*/admin/",
    "sasl.server.max.receive.size": "1000000",
    "listener.name.mutual.ssl.client.auth": "none",
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", ["", "0"])
def test_security_cannot_be_switched_off_over_the_network(stage: Stage, setting: str, name: str) -> None:
    """Settings of listeners and logins are those of the broker's start, for super users too."""
    with stage.broker.logged_in("admin") as admin:
        assert codes(admin.ask(44, 1, resource(4, name, setting, SETTINGS[setting])))


ACLS: dict[str, Fields] = {
    "no principal": {"principal": ""},
    "no kind": {"principal": "alice"},
    "no name": {"principal": "User:"},
    "cluster with a name": {"resource_type": CLUSTER_RESOURCE, "resource_name": "other"},
    "prefix on the cluster": {"resource_type": CLUSTER_RESOURCE, "resource_name": "kafka", "resource_pattern_type": 4},
    "any type": {"resource_type": 1},
    "unknown type": {"resource_type": 99},
    "any pattern": {"resource_pattern_type": 1},
    "match pattern": {"resource_pattern_type": 2},
    "unknown pattern": {"resource_pattern_type": 77},
    "any operation": {"operation": 1},
    "unknown operation": {"operation": 100},
    "operation of another type": {"resource_type": GROUP_RESOURCE, "operation": 4},
    "any permission": {"permission_type": 1},
    "unknown permission": {"permission_type": 9},
    "no host": {"host": ""},
    "host that is a name": {"host": "localhost"},
    "host that is a network": {"host": "10.0.0.0/8"},
    "empty name": {"resource_name": ""},
    "long name": {"resource_name": "a" * 30_000},
    "long principal": {"principal": "User:" + "a" * 30_000},
}


@pytest.mark.parametrize("acl", ACLS)
def test_an_acl_that_means_nothing_is_refused(stage: Stage, acl: str) -> None:
    with stage.broker.logged_in("admin") as admin:
        answer = admin.ask(30, 3, {"creations": [{**EVERYTHING, **ACLS[acl]}]})
        assert codes(answer) == {INVALID_REQUEST}, answer


def test_denials_are_not_a_secret_of_the_cache(stage: Stage) -> None:
    """Many names do not push decisions out of the cache in favour of the attacker."""
    for number in range(0, 3_000, 500):
        names = [{"name": f"n{number + each}"} for each in range(500)]
        answer = answered(stage, 3, 12, {"topics": names, "allow_auto_topic_creation": False})
        assert codes(answer) == T
    assert codes(answered(stage, *fetch("victim"))) == T


def test_denied_codes_are_those_of_kafka() -> None:
    assert {TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, TRANSACTION_DENIED} == DENIALS
