"""A broker joins, loses its session, steps down by its own clock and returns as a new incarnation."""

import asyncio
from dataclasses import replace

import pytest
from tests.support.shared_store import TOPIC_ID, TTL_MS, Node, Store, put_topic
from tests.support.waiting import eventually_async

from tidemill.cluster.core.image import NO_BROKER, decode_state, state_key
from tidemill.cluster.core.registration import DEGRADED, Endpoint, decode_registration, encode_registration
from tidemill.cluster.interface import CoordinationAway, VersionedValue
from tidemill.cluster.partition_states import WRITES_MAX
from tidemill.model.errors import BrokerIdNotRegistered, InvalidConfig, InvalidRequest

pytestmark = pytest.mark.event_loop("virtual")


async def test_b18_a_broker_that_cannot_renew_steps_down_before_others_may_lead() -> None:
    store = Store()
    one, other = Node(store, 1), Node(store, 2)
    await one.start()
    await other.start(controls=True)
    put_topic(store, 1, 2)
    await eventually_async(lambda: "orders" in other.metadata.image.by_name, "the topic is not seen")
    first = one.membership.registration.incarnation
    one.line.cut = True
    cut_at = asyncio.get_running_loop().time()
    await eventually_async(lambda: other.state().leader == 2, "no broker took over")
    led = asyncio.get_running_loop().time()
    [stepped] = one.stepped_down
    assert cut_at < stepped < led, "it steps down by its own clock, before the store has ended its session"
    assert led - cut_at <= TTL_MS / 1000 + 1
    assert one.membership.session is None
    one.line.cut = False
    await eventually_async(lambda: one.membership.alive, "it does not come back")
    assert one.membership.registration.incarnation != first
    assert decode_registration(store.entries["brokers/1"].value).incarnation != first


async def test_a_short_cut_is_not_noticed() -> None:
    store = Store()
    one = Node(store, 1)
    await one.start()
    one.line.cut = True
    await asyncio.sleep(TTL_MS / 1000 / 2)
    one.line.cut = False
    await asyncio.sleep(2 * TTL_MS / 1000)
    assert one.membership.alive
    assert one.stepped_down == []


async def test_b22_a_number_that_another_broker_has_is_refused_and_nothing_is_changed() -> None:
    store = Store()
    one, copy = Node(store, 1), Node(store, 1, directory=99)
    await one.start()
    put_topic(store, 1)
    before = dict(store.entries)
    began = asyncio.get_running_loop().time()
    with pytest.raises(InvalidConfig, match=r"node id 1 is used by another broker at 127.0.0.1:9001; choose another"):
        await copy.start()
    waited = asyncio.get_running_loop().time() - began
    assert waited > TTL_MS / 1000, "a broker that has just died holds its number for as long as a session"
    assert store.entries == before
    assert one.membership.alive


async def test_b22_a_broker_that_restarts_within_its_session_first_gives_up_its_partitions() -> None:
    store = Store()
    one, other = Node(store, 1), Node(store, 2)
    await one.start()
    await other.start()
    put_topic(store, 1, 2)
    one.line.cut = True  # killed: no session is renewed or handed over
    again = Node(store, 1)
    again.membership.registration = replace(again.membership.registration, incarnation=other.membership._new_id())
    began = asyncio.get_running_loop().time()
    await again.start()
    assert asyncio.get_running_loop().time() - began < 1, "the same data directory: the process before is dead"
    assert (again.state().leader, again.state().leader_epoch, again.state().isr) == (2, 1, (2,))


async def test_a_broker_joins_while_its_old_session_expires() -> None:
    store = Store()
    store.put("brokers/1", encode_registration(Node(store, 1).membership.registration))
    again = Node(store, 1)
    get = again.line.get

    async def get_and_expire(key: str) -> VersionedValue | None:
        found = await get(key)
        if key == "known/1" and "brokers/1" in store.entries:
            store.put("brokers/1", None)
        return found

    again.line.get = get_and_expire  # type: ignore[method-assign]
    await again.start()
    assert again.membership.alive
    found = decode_registration(store.entries["brokers/1"].value)
    assert found.incarnation == again.membership.registration.incarnation


async def test_another_data_directory_has_nothing_of_what_was_in_sync() -> None:
    store = Store()
    one = Node(store, 1)
    await one.start()
    put_topic(store, 1)
    await eventually_async(lambda: "orders" in one.metadata.image.by_name, "the topic is not seen")
    await one.membership.leave()
    again = Node(store, 1, directory=99)
    await again.start()
    assert (again.state().leader, again.state().isr) == (-1, ())


async def test_a_broker_that_left_stays_known_until_it_is_forgotten() -> None:
    store = Store()
    one, other = Node(store, 1), Node(store, 2)
    await one.start()
    await other.start()
    await one.membership.announce(replace(one.membership.registration, rack="b", kafka=Endpoint("host", 9092)))
    await one.membership.remember()
    put_topic(store, 1, 2)
    await eventually_async(lambda: "orders" in other.metadata.image.by_name, "the topic is not seen")
    with pytest.raises(InvalidRequest, match="broker 1 is running; stop it"):
        await other.membership.forget(1)
    one.line.cut = True
    await eventually_async(lambda: 1 not in other.metadata.image.brokers, "it is still there")
    assert [(each.node_id, each.rack, each.kafka) for each in other.metadata.image.missing()] == [
        (1, "b", Endpoint("host", 9092))
    ]
    before = dict(store.entries)
    with pytest.raises(InvalidRequest, match="replicas of 1 partitions, such as orders-0"):
        await other.membership.forget(1)
    with pytest.raises(BrokerIdNotRegistered, match="broker 7 is not known"):
        await other.membership.forget(7)
    assert store.entries == before
    store.put("topics/orders", None)
    await eventually_async(lambda: not other.metadata.image.by_name, "the topic is still seen")
    await other.membership.forget(1)
    assert other.metadata.image.missing() == []
    await one.membership.leave()
    again = Node(store, 1)
    await again.start()
    assert 1 in again.metadata.image.known, "who comes back is known again"


async def test_a_broker_that_joins_again_is_not_forgotten() -> None:
    store = Store()
    one, other = Node(store, 1), Node(store, 2)
    await one.start()
    await other.start()
    await one.membership.leave()
    await eventually_async(lambda: 1 not in other.metadata.image.brokers, "it is still there")
    # It is back, and the other one has not heard of it.
    store.put("brokers/1", encode_registration(one.membership.registration))
    with pytest.raises(InvalidRequest, match="has joined again"):
        await other.membership.forget(1)
    assert "known/1" in store.entries


async def test_a_report_that_failed_is_sent_again() -> None:
    store = Store()
    one = Node(store, 1)
    await one.start()
    worse = replace(one.membership.registration, state=DEGRADED, room=False)
    one.line.cut = True
    with pytest.raises(CoordinationAway):
        await one.membership.announce(worse)
    assert one.membership.registration.room, "as far as others know there is room"
    one.line.cut = False
    await one.membership.announce(worse)
    assert not decode_registration(store.entries["brokers/1"].value).room


async def test_a_leaving_broker_hands_over_its_partitions_at_once() -> None:
    store = Store()
    one, other = Node(store, 1), Node(store, 2)
    await one.start()
    await other.start()
    put_topic(store, 1, 2)
    await eventually_async(lambda: "orders" in one.metadata.image.by_name, "the topic is not seen")
    await one.membership.leave()
    assert "brokers/1" not in store.entries
    await eventually_async(lambda: other.state().leader == 2, "no broker leads", within_s=1)
    assert one.stepped_down == []


@pytest.mark.parametrize("alone", [True, False], ids=["the last broker", "the only copy"])
async def test_a_broker_with_the_only_replicas_leaves_without_delay(alone: bool) -> None:
    """The controller must not give it back to a broker that is about to leave. So many take a while."""
    store = Store()
    one, other = Node(store, 1), Node(store, 2)
    await one.start(controls=alone)
    if not alone:
        await other.start(controls=True)
    put_topic(store, 1, partitions=2 * WRITES_MAX)
    await asyncio.sleep(TTL_MS / 1000)  # all have seen it, and there is a controller
    began = asyncio.get_running_loop().time()
    await one.membership.leave()
    assert asyncio.get_running_loop().time() - began < 1
    assert "brokers/1" not in store.entries
    for index in range(2 * WRITES_MAX):
        state = decode_state(index, store.entries[state_key(TOPIC_ID, index)].value)
        assert (state.leader, state.isr) == (NO_BROKER, (1,)), "it still counts as the one who has everything"
