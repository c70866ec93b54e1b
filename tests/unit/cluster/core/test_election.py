"""Leaders and in-sync sets: every rule by itself, and all of them on random orders of events."""

from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tidemill.cluster.core.changes import StateChange
from tidemill.cluster.core.election import cancel, elect, hand_to, prefer, reassign, retire, settle
from tidemill.cluster.core.image import NO_BROKER, Image, PartitionInfo, TopicCreated

INFO = PartitionInfo(0, 1, (1, 2, 3), (1, 2, 3), 4, 9)


def test_the_next_in_sync_leads() -> None:
    after = elect(INFO, {2, 3}, unclean=False)
    assert after == replace(INFO, leader=2, isr=(2, 3), leader_epoch=5, version=10)
    behind = replace(INFO, isr=(1, 3))
    assert elect(behind, {2, 3}, unclean=False) == replace(INFO, leader=3, isr=(3,), leader_epoch=5, version=10)


def test_b2_no_broker_leads_a_partition_without_a_log() -> None:
    """A replica that is not in sync does not lead unless the topic allows it."""
    alone = replace(INFO, isr=(1,))
    after = elect(alone, {2, 3}, unclean=False)
    assert after == replace(alone, leader=NO_BROKER, leader_epoch=5, version=10)
    assert elect(after, {2, 3}, unclean=False) is None
    assert elect(after, {1, 2, 3}, unclean=False) == replace(alone, leader=1, leader_epoch=6, version=11)
    assert elect(after, {2, 3}, unclean=True) == replace(alone, leader=2, isr=(2,), leader_epoch=6, version=11)


def test_the_dead_leave_the_in_sync_set_without_a_new_epoch() -> None:
    assert elect(INFO, {1, 2}, unclean=False) == replace(INFO, isr=(1, 2), version=10)
    assert elect(INFO, {1, 2, 3}, unclean=True) is None


def test_a_full_broker_leads_only_what_no_other_broker_can() -> None:
    moved = elect(INFO, {2, 3}, {1}, unclean=False)
    assert moved == replace(INFO, leader=2, isr=(2, 3), leader_epoch=5, version=10)
    assert elect(moved, {2}, {1, 3}, unclean=False) == replace(moved, isr=(2,), version=11), "acks=all need not wait"
    assert elect(INFO, set(), {1, 2, 3}, unclean=False) is None, "all are full: who led can still be read"
    assert elect(INFO, set(), {2, 3}, unclean=False) == replace(
        INFO, leader=2, isr=(2, 3), leader_epoch=5, version=10
    ), "the leader is dead, a full one has everything"
    alone = replace(INFO, isr=(1,))
    assert elect(alone, {2, 3}, {1}, unclean=False) is None, "the others do not have everything"
    assert elect(replace(alone, isr=(1, 3)), {2, 3}, {1}, unclean=False) == replace(
        alone, leader=3, isr=(3,), leader_epoch=5, version=10
    ), "one has caught up"


def test_b22_a_broker_that_comes_back_does_not_lead_on() -> None:
    """A new incarnation loses leadership."""
    assert retire(INFO, 1, {2, 3}) == replace(INFO, leader=2, isr=(2, 3), leader_epoch=5, version=10)
    alone = replace(INFO, isr=(1,))
    assert retire(alone, 1, {2, 3}) == replace(alone, leader=NO_BROKER, leader_epoch=5, version=10)
    assert retire(INFO, 1, set()) == replace(INFO, leader=NO_BROKER, leader_epoch=5, version=10)
    assert retire(INFO, 3, {1, 2}) == replace(INFO, isr=(1, 2), version=10)
    assert retire(replace(INFO, isr=(1, 2)), 3, {1, 2}) is None


def test_a_broker_without_its_disk_has_nothing() -> None:
    alone = replace(INFO, leader=NO_BROKER, isr=(1,))
    assert retire(alone, 1, {2, 3}, lost=True) == replace(alone, isr=(), version=10)
    assert retire(INFO, 1, set(), lost=True) == replace(INFO, leader=NO_BROKER, isr=(2, 3), leader_epoch=5, version=10)
    emptied = replace(alone, isr=())
    assert elect(emptied, {1, 2, 3}, unclean=False) is None


def test_the_first_replica_leads_again() -> None:
    second = replace(INFO, leader=2)
    assert prefer(second, {1, 2, 3}) == replace(INFO, leader_epoch=5, version=10)
    assert prefer(second, {2, 3}) is None
    assert prefer(replace(second, isr=(2, 3)), {1, 2, 3}) is None
    assert prefer(INFO, {1, 2, 3}) is None


def test_a_partition_moves_when_the_new_ones_are_in_sync() -> None:
    moving = reassign(INFO, (3, 4, 5))
    assert moving == replace(INFO, replicas=(3, 4, 5, 1, 2), adding=(4, 5), removing=(1, 2), version=10)
    assert settle(moving, {1, 2, 3, 4, 5}) is None
    ready = replace(moving, isr=(1, 2, 3, 4, 5))
    after = settle(ready, {1, 2, 3, 4, 5})
    assert after is not None
    assert (after.replicas, after.isr, after.leader, after.leader_epoch) == ((3, 4, 5), (3, 4, 5), 3, 5)
    assert (after.adding, after.removing) == ((), ())
    assert reassign(after, (3, 4, 5)) is None


def test_a_move_is_given_up_or_changed() -> None:
    moving = reassign(INFO, (4, 2, 3))
    assert moving is not None
    back = cancel(moving)
    assert back is not None
    assert set(back.replicas) == {1, 2, 3}
    assert (back.leader, back.adding, back.removing, back.version) == (1, (), (), 11)
    assert cancel(back) is None
    other = reassign(moving, (1, 5))
    assert other is not None
    assert (other.adding, set(other.removing)) == ((5,), {2, 3})
    assert 4 not in other.replicas


def test_a_leader_that_leaves_the_replicas_leads_no_more() -> None:
    moving = replace(INFO, leader=4, replicas=(1, 2, 3, 4), isr=(1, 4), adding=(4,))
    assert cancel(moving) == replace(
        INFO, leader=NO_BROKER, isr=(1,), leader_epoch=INFO.leader_epoch + 1, version=INFO.version + 1
    )
    leaderless = replace(moving, leader=NO_BROKER)
    assert cancel(leaderless) == replace(INFO, leader=NO_BROKER, isr=(1,), version=INFO.version + 1), "the same epoch"


def test_an_election_is_unclean_when_the_leader_may_lack_records() -> None:
    topic = Image().apply(TopicCreated("t", UUID(int=1), (INFO,), {})).by_name["t"]
    before = replace(INFO, leader=NO_BROKER, isr=(1,))
    unclean = {
        leader: StateChange(topic, before, replace(before, leader=leader)).unclean for leader in (1, 2, NO_BROKER, 9)
    }
    assert unclean == {1: False, 2: True, NO_BROKER: False, 9: False}


def test_one_replica_less() -> None:
    fewer = reassign(INFO, (2,))
    assert fewer is not None
    after = settle(fewer, {1, 2, 3})
    assert after is not None
    assert (after.replicas, after.leader, after.isr) == ((2,), 2, (2,))


def test_more_replicas_need_no_new_epoch() -> None:
    more = reassign(INFO, (1, 2, 3, 4))
    assert more is not None
    ready = replace(more, isr=(1, 2, 3, 4))
    live = {1, 2, 3, 4}
    after = replace(INFO, replicas=(1, 2, 3, 4), isr=(1, 2, 3, 4), version=more.version + 1)
    assert settle(ready, live) == after
    moved = settle(replace(ready, leader=NO_BROKER), live)
    assert moved is not None
    assert (moved.leader, moved.leader_epoch) == (1, INFO.leader_epoch + 1)


NODES = st.integers(1, 5)
STEP = st.one_of(
    st.tuples(st.just("live"), st.frozensets(NODES)),
    st.tuples(st.just("retire"), NODES),
    st.tuples(st.just("isr"), st.frozensets(NODES)),
    st.tuples(st.just("move"), st.lists(NODES, min_size=1, max_size=3, unique=True)),
    st.tuples(st.just("cancel"), st.none()),
    st.tuples(st.just("prefer"), st.none()),
)


@given(st.lists(STEP, max_size=30))
def test_any_life_of_a_partition(steps: list[tuple[str, object]]) -> None:
    """Whatever happens: leaders are in sync, epochs and versions only grow, and who has the data is remembered."""
    info, live = INFO, frozenset({1, 2, 3, 4, 5})
    for kind, value in steps:
        after: PartitionInfo | None = None
        if kind == "live":
            live = value  # type: ignore[assignment]
        elif kind == "retire":
            after = retire(info, value, live - {value})  # type: ignore[arg-type]
        elif kind == "isr" and info.leader != NO_BROKER:
            isr = tuple(node for node in info.replicas if node == info.leader or node in value)  # type: ignore[operator]
            after = replace(info, isr=isr, version=info.version + 1)
        elif kind == "move":
            after = reassign(info, tuple(value))  # type: ignore[arg-type]
        elif kind == "cancel":
            after = cancel(info)
        elif kind == "prefer":
            after = prefer(info, live)
        for decided in (after, settle(after or info, live) or elect(after or info, live, unclean=False)):
            if decided is None:
                continue
            assert decided.version > info.version
            assert decided.leader_epoch >= info.leader_epoch
            assert decided.leader == info.leader or decided.leader_epoch > info.leader_epoch
            assert decided.leader in {NO_BROKER, *decided.isr}
            assert set(decided.isr) <= set(decided.replicas)
            assert len(set(decided.replicas)) == len(decided.replicas)
            assert decided.isr, "a broker has the data"
            info = decided


def test_a_shared_partition_is_handed_to_one_broker() -> None:
    moving = replace(INFO, adding=(3,), removing=(1,))
    after = hand_to(moving, 9)
    assert after == PartitionInfo(0, 9, (9,), (9,), 5, 10)
    assert hand_to(after, 9) is None
    assert hand_to(INFO, 1) == PartitionInfo(0, 1, (1,), (1,), 5, 10), "the other replicas leave"
    assert hand_to(replace(after, leader=NO_BROKER), 9) == replace(after, leader_epoch=6, version=11)
