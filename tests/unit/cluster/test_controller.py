"""One overseer is the controller. Another takes over when it is lost, and its late decisions are not written."""

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest
from tests.support.shared_store import TTL_MS, Node, Store, put_topic
from tests.support.waiting import eventually_async

from tidemill.cluster.core.changes import StateChange
from tidemill.cluster.core.tombstones import Tombstone, decode_tombstone, encode_tombstone, tombstone_key
from tidemill.cluster.core.view import CONTROLLER
from tidemill.cluster.interface import KeyGuard

pytestmark = pytest.mark.event_loop("virtual")


async def three(store: Store) -> list[Node]:
    """Three brokers; the first is the controller."""
    nodes = [Node(store, number) for number in (1, 2, 3)]
    for node in nodes:
        await node.start(controls=True)
        await eventually_async(lambda: CONTROLLER in store.entries, "no broker decides")
    put_topic(store, 1, 2, 3)
    await eventually_async(lambda: all("orders" in node.metadata.image.by_name for node in nodes), "topic not seen")
    assert store.entries[CONTROLLER].value == b"1"
    return nodes


async def test_another_controller_is_elected_and_continues() -> None:
    store = Store()
    one, two, _ = await three(store)
    one.line.cut = True
    cut_at = asyncio.get_running_loop().time()
    await eventually_async(lambda: two.state().leader == 2, "no broker decides who leads")
    led = asyncio.get_running_loop().time()
    assert store.entries[CONTROLLER].value in (b"2", b"3")
    assert led - cut_at <= TTL_MS / 1000 + 2
    assert two.state().isr == (2, 3)
    one.line.cut = False
    await eventually_async(lambda: one.membership.alive, "it does not come back")
    await asyncio.sleep(5)
    assert store.entries[CONTROLLER].value != b"1", "who is the controller stays it"


async def test_a_controller_whose_election_response_was_lost_decides() -> None:
    """Its key lives with its session: no other broker will ever decide."""
    store = Store()
    one, two = Node(store, 1), Node(store, 2)
    one.line.loses_answers_to = CONTROLLER
    await one.start(controls=True)
    await eventually_async(lambda: CONTROLLER in store.entries, "it does not stand")
    await two.start(controls=True)
    put_topic(store, 3, 2)
    one.line.loses_answers_to = None
    await eventually_async(lambda: "orders" in two.metadata.image.by_name and two.state().leader == 2, "no leader")
    assert store.entries[CONTROLLER].value == b"1"


async def test_the_former_controller_does_not_wait_for_itself_after_an_outage() -> None:
    """Coordination that was away keeps sessions longer: no broker leads anything until there is a controller."""
    store = Store()
    nodes = await three(store)
    store.keeps_sessions = True
    for node in nodes:
        node.line.cut = True
    await eventually_async(lambda: not any(node.membership.alive for node in nodes), "they do not step down")
    for node in nodes:
        node.line.cut = False
    await eventually_async(lambda: all(node.membership.alive for node in nodes), "they do not come back")
    await eventually_async(lambda: nodes[1].state().leader in (1, 2, 3), "no leader", within_s=TTL_MS / 2000)


async def test_a_controller_that_was_replaced_writes_nothing() -> None:
    store = Store()
    one, *_ = await three(store)
    guard = KeyGuard(CONTROLLER, store.revision_of(CONTROLLER))
    store.put(CONTROLLER, b"3")  # it was away for so long, and has not heard of it
    info = one.state()
    change = StateChange(
        one.metadata.image.by_id[one.metadata.image.by_name["orders"].topic_id],
        info,
        replace(info, leader=3, leader_epoch=1, version=1),
    )
    before = dict(store.entries)
    assert await one.membership.states.write(change, guard) is None
    assert store.entries == before


async def test_a_broker_whose_disk_is_full_leads_nothing_until_there_is_room() -> None:
    store = Store()
    one, two, _ = await three(store)
    await one.membership.announce(replace(one.membership.registration, room=False))
    await eventually_async(lambda: two.state().leader == 2, "the full one leads on", within_s=2)
    assert two.state().isr == (2, 3)
    await two.membership.announce(replace(two.membership.registration, room=False))
    await eventually_async(lambda: one.state().leader == 3, "the full one leads on", within_s=2)
    await one.membership.announce(replace(one.membership.registration, room=True))
    await asyncio.sleep(2)
    assert one.state().leader == 3, "it has to be in sync first"


async def test_the_deletion_of_an_owner_that_is_lost_is_taken_over() -> None:
    store = Store()
    _, two, three_ = await three(store)
    three_.line.cut = True
    key = tombstone_key("orders")
    store.put(key, encode_tombstone(Tombstone("orders", UUID(int=77), 1, 3, (1, 2, 3))))
    await asyncio.sleep(1)
    assert decode_tombstone(store.entries[key].value).owner == 3, "its owner is still a member"
    await eventually_async(lambda: decode_tombstone(store.entries[key].value).owner == 1, "the deletion has no owner")
    assert two.membership.alive
