"""Requests that are large because of the state behind them: groups and fetch sessions with very many names."""

from collections.abc import Iterator

import pytest
from tests.hostile.attacked import AttackedBroker, attacked_broker
from tests.hostile.frames import Peer

from tidemill.groups.core.subscriptions import write_subscription
from tidemill.model.errors import GroupSubscribedToTopic, InvalidRequest

NAMES = [f"name-{number}" for number in range(5_000)]
MEMBERS = 4
CONSUMER = "consumer"


@pytest.fixture(scope="module")
def broker() -> Iterator[AttackedBroker]:
    with attacked_broker({"group.initial.rebalance.delay.ms": "0"}) as attacked, Peer(attacked.address) as peer:
        for number in range(20):
            attacked.create_topic(peer, f"name-{number}", 20)
        for group in ("classic", "new"):
            assert not peer.ask(10, 4, {"key_type": 0, "coordinator_keys": [group]}).coordinators[0].error_code
        yield attacked


def join(peer: Peer, group: str, protocols: int) -> tuple[int, str]:
    offered = [{"name": f"range-{n}", "metadata": write_subscription(NAMES)} for n in range(protocols)]
    fields = {"group_id": group, "session_timeout": 30_000, "rebalance_timeout": 60_000, "member_id": ""}
    answer = peer.ask(11, 1, {**fields, "protocol_type": CONSUMER, "protocols": offered})
    return answer.error_code, answer.member_id


def test_offsets_are_deleted_of_a_group_that_subscribes_to_very_many_topics(broker: AttackedBroker) -> None:
    with Peer(broker.address, timeout_s=120) as peer, Peer(broker.address, timeout_s=120) as member:
        error, member_id = join(member, "classic", 1)
        assert not error
        assignments = [{"member_id": member_id, "assignment": b""}] * 1_000
        synced = member.ask(
            14, 0, {"group_id": "classic", "generation_id": 1, "member_id": member_id, "assignments": assignments}
        )
        assert not synced.error_code
        topics = [{"name": name, "partitions": [{"partition_index": 0}]} for name in [*NAMES, *NAMES[::-1]]]
        with broker.watched():
            answer = peer.ask(47, 0, {"group_id": "classic", "topics": topics})
        assert {topic.partitions[0].error_code for topic in answer.topics} == {GroupSubscribedToTopic.code}


def test_members_subscribe_to_very_many_topics(broker: AttackedBroker) -> None:
    def heartbeat(peer: Peer, member: int, names: list[str]) -> int:
        fields = {"group_id": "new", "member_id": f"member-{member}", "member_epoch": 0, "instance_id": None}
        reported = {"rebalance_timeout": 60_000, "subscribed_topic_names": names, "topic_partitions": []}
        nothing = {"rack_id": None, "server_assignor": None, "subscribed_topic_regex": None}
        code: int = peer.ask(68, 1, {**fields, **reported, **nothing}).error_code
        return code

    with Peer(broker.address, timeout_s=120) as peer, broker.watched():
        for number in range(3 * MEMBERS):
            assert not heartbeat(peer, number % MEMBERS, NAMES[: 4_000 + number * 50])


def test_a_member_offers_no_more_protocols_than_a_client_does(broker: AttackedBroker) -> None:
    with Peer(broker.address) as peer:
        offered = [{"name": f"p{n}", "metadata": b""} for n in range(101)]
        fields = {"group_id": "many", "session_timeout": 30_000, "rebalance_timeout": 60_000, "member_id": ""}
        answer = peer.ask(11, 1, {**fields, "protocol_type": CONSUMER, "protocols": offered})
        assert answer.error_code == InvalidRequest.code


def test_a_fetch_session_changes_very_many_partitions(broker: AttackedBroker) -> None:
    indexes = range(20)
    limits = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1000, "isolation_level": 0, "rack_id": ""}

    def fetch(peer: Peer, session: int, epoch: int, topics: list[str], forgotten: list[str]) -> tuple[int, int]:
        parts = [
            {"partition": n, "fetch_offset": 0, "partition_max_bytes": 100, "current_leader_epoch": -1} for n in indexes
        ]
        fields = {
            **limits,
            "session_id": session,
            "session_epoch": epoch,
            "topics": [{"topic": name, "partitions": parts} for name in topics],
            "forgotten_topics_data": [{"topic": name, "partitions": list(indexes)} for name in forgotten],
        }
        answer = peer.ask(1, 11, fields)
        return answer.error_code, answer.session_id

    with Peer(broker.address, timeout_s=120) as peer, broker.watched():
        error, session = fetch(peer, 0, 0, NAMES[:400], [])
        assert not error
        assert session
        for epoch in range(1, 4):
            assert fetch(peer, session, epoch, NAMES[:400], NAMES[400:1_400]) == (0, session)
