"""The view applies the changes of coordination, and gives the same image as a listing of all keys."""

from collections import Counter
from uuid import UUID

from tidemill.cluster.core.changes import StateChange, plan, preferred, retirements, spread
from tidemill.cluster.core.consumer_registry import RegisteredConsumer, consumer_key, encode_consumer
from tidemill.cluster.core.image import (
    NO_BROKER,
    TOPICS,
    Image,
    PartitionInfo,
    TopicCreated,
    encode_state,
    encode_topic,
    state_key,
)
from tidemill.cluster.core.placement import place
from tidemill.cluster.core.registration import Endpoint, Registration, broker_key, encode_registration
from tidemill.cluster.core.tombstones import decode_tombstone, encode_tombstone, tombstone_for, tombstone_key
from tidemill.cluster.core.view import CONTROLLER, KeyChange, View

CREATED = TopicCreated("orders", UUID(int=1), place([1, 2, 3], 0, 2, 3), {"retention.ms": "5"})
TOPIC = Image().apply(CREATED).by_name["orders"]


def broker(node_id: int, *, server: bool = True) -> KeyChange:
    kafka = Endpoint("host", 9000 + node_id) if server else None
    document = encode_registration(Registration(node_id, UUID(int=node_id), UUID(int=node_id), kafka=kafka))
    return KeyChange(broker_key(node_id), document, 1)


def view_of(*changes: KeyChange) -> View:
    view = View({})
    view.apply([KeyChange(TOPICS + "orders", encode_topic(TOPIC), 1), *changes])
    return view


def test_a_change_of_a_consumer_names_its_timeline() -> None:
    view, key = View({}), consumer_key("emails", "mailer-1")
    registered = RegisteredConsumer("mailer-1", "rack-a", 2, 5)
    came = view.apply([KeyChange(key, encode_consumer(registered), 1)])
    assert came.timelines == frozenset({"emails"})
    assert view.consumers["emails"] == {"mailer-1": registered}
    left = view.apply([KeyChange(key, None, 2)])
    assert left.timelines == frozenset({"emails"})
    assert "emails" not in view.consumers


def test_a_state_of_its_own_counts() -> None:
    view = view_of()
    assert view.image.by_name["orders"] == TOPIC
    moved = PartitionInfo(1, 3, (3, 1), (3,), 2, 5)
    touched = view.apply([KeyChange(state_key(UUID(int=1), 1), encode_state(moved), 7)])
    assert touched.topics == {"orders"}
    assert not touched.brokers
    assert view.image.by_name["orders"].partitions == (TOPIC.partitions[0], moved)
    assert view.image.by_id[UUID(int=1)] is view.image.by_name["orders"]
    assert view.revision_of(state_key(UUID(int=1), 1)) == 7
    assert view.revision_of(state_key(UUID(int=1), 0)) == 0


def test_a_tombstone_removes_its_topic() -> None:
    view = view_of(broker(1))
    tombstone = tombstone_for(TOPIC, 1, [1, 9])
    assert tombstone.left == (1, 2, 3, 9)
    assert decode_tombstone(encode_tombstone(tombstone)) == tombstone
    touched = view.apply([KeyChange(tombstone_key("orders"), encode_tombstone(tombstone), 2)])
    assert touched.deletions
    assert not view.image.by_name
    assert not view.image.by_id
    assert not tombstone.finished({1, 2})
    assert tombstone.without(1).finished({1})
    another = Image().apply(CREATED._replace(topic_id=UUID(int=2))).by_name["orders"]
    view.apply([KeyChange(TOPICS + "orders", encode_topic(another), 4)])
    assert view.image.by_name["orders"].topic_id == UUID(int=2), "the tombstone is of the topic before"


def test_the_controller_is_known() -> None:
    view = view_of()
    version = view.image.version
    assert view.controller == NO_BROKER
    assert view.apply([KeyChange(CONTROLLER, b"2", 3)]).controller
    assert view.controller == 2
    assert view.image.version > version
    view.apply([KeyChange(CONTROLLER, None, 4)])
    assert view.controller == NO_BROKER


def test_unknown_keys_are_ignored() -> None:
    view = view_of()
    image = view.image
    assert not view.apply([KeyChange("other/key", b"x", 9)]).topics
    assert view.image is image


def test_a_plan_that_was_done_leaves_nothing_to_do() -> None:
    view = view_of(broker(2), broker(3), broker(1, server=False))
    changes = list(plan(view.image))
    assert {change.before.index for change in changes} == {0, 1}
    assert all(change.after.leader in {2, 3} for change in changes), "a broker without a server does not lead"
    view.apply(
        [KeyChange(state_key(UUID(int=1), change.before.index), encode_state(change.after), 5) for change in changes]
    )
    assert list(plan(view.image)) == []
    assert list(plan(view.image, ["orders", "none"])) == []


def test_a_broker_that_goes_leads_nothing() -> None:
    view = view_of(broker(1), broker(2), broker(3))
    changes = list(retirements(view.image, 1))
    assert [change.after.leader for change in changes if change.before.leader == 1] == [2]
    assert all(1 not in change.after.isr for change in changes)


def test_partitions_return_to_their_first_replicas() -> None:
    view = view_of(broker(1), broker(2), broker(3))
    first = TOPIC.partitions[0]
    moved = PartitionInfo(0, first.replicas[1], first.replicas, first.replicas, 3, 5)
    view.apply([KeyChange(state_key(UUID(int=1), 0), encode_state(moved), 7)])
    [change] = preferred(view.image)
    assert (change.topic.name, change.before) == ("orders", moved)
    assert (change.after.leader, change.after.leader_epoch) == (first.replicas[0], 4)
    view.apply([KeyChange(broker_key(first.replicas[0]), None, 8)])
    assert list(preferred(view.image)) == []


def test_a_partition_that_all_brokers_see_goes_to_the_broker_that_leads_fewest() -> None:
    view = View({})
    for number, name in enumerate(("a", "b", "c"), 1):
        created = CREATED._replace(name=name, topic_id=UUID(int=number), partitions=place([1, 2, 3], 0, 3, 1))
        topic = Image().apply(created).by_name[name]
        view.apply([KeyChange(TOPICS + name, encode_topic(topic), number)])
    view.apply([broker(2), broker(3)])

    def do(changes: list[StateChange]) -> Counter[int]:
        for each in changes:
            view.apply([KeyChange(state_key(each.topic.topic_id, each.before.index), encode_state(each.after), 9)])
        return Counter(info.leader for topic in view.image.by_name.values() for info in topic.partitions)

    taken = list(plan(view.image, is_shared=lambda _: True))
    assert [(each.before.leader, each.after.leader_epoch) for each in taken] == [(1, 1)] * 3
    assert all(each.after.replicas == each.after.isr == (each.after.leader,) for each in taken)
    assert sorted(do(taken).values()) == [4, 5]
    assert list(plan(view.image, is_shared=lambda _: True)) == []
    view.apply([broker(1)])
    assert list(plan(view.image, is_shared=lambda _: True)) == [], "no leader is disturbed"
    assert do(list(spread(view.image, lambda _: True))) == {1: 3, 2: 3, 3: 3}
    assert list(spread(view.image, lambda _: True)) == []
    view.apply([KeyChange(broker_key(node), None, 10) for node in (1, 2, 3)])
    assert list(plan(view.image, is_shared=lambda _: True)) == [], "no broker is there"


def test_a_shared_partition_goes_to_the_broker_that_leads_fewest_of_all_topics() -> None:
    view = View({})
    leaders = {"busy": (2, 2, 3), "lost": (1,)}
    for number, (name, nodes) in enumerate(leaders.items(), 1):
        partitions = tuple(PartitionInfo(index, node, (node,), (node,), 0, 0) for index, node in enumerate(nodes))
        topic = Image().apply(TopicCreated(name, UUID(int=number), partitions, {})).by_name[name]
        view.apply([KeyChange(TOPICS + name, encode_topic(topic), number)])
    view.apply([broker(2), broker(3)])
    [change] = plan(view.image, ["lost"], is_shared=lambda _: True)
    assert change.after.leader == 3, "broker 2 leads two partitions of another topic"


def test_a_deleted_state_gives_back_the_state_of_the_creation() -> None:
    view = view_of()
    key = state_key(UUID(int=1), 1)
    view.apply([KeyChange(key, encode_state(PartitionInfo(1, 3, (3, 1), (3,), 2, 5)), 7)])
    assert view.apply([KeyChange(key, None, 8)]).topics == {"orders"}
    assert view.image.by_name["orders"].partitions == TOPIC.partitions
    assert view.revision_of(key) == 0


def test_the_deletion_of_what_is_not_known_changes_no_topic() -> None:
    view = view_of()
    view.apply([KeyChange(TOPICS + "another", None, 3), KeyChange(state_key(UUID(int=9), 0), None, 4)])
    assert dict(view.image.by_name) == {"orders": TOPIC}
