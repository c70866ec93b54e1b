"""The plan of a rebalance: what changes, what is copied, and who leads."""

from tidemill.cluster.core.rebalance_plan import CarriedPartition, plan_rebalance
from tidemill.model.topics import TopicPartition

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_balanced_cluster_has_no_plan() -> None:
    carried = {ZERO: CarriedPartition(1, (1, 2)), ONE: CarriedPartition(2, (2, 1))}
    assert plan_rebalance(carried, [1, 2]) == []


def test_a_new_broker_gets_replicas_by_copies() -> None:
    carried = {TopicPartition("t", index): CarriedPartition(1, (1,)) for index in range(4)}
    plans = plan_rebalance(carried, [1, 2])
    assert [(each.replicas, each.leader, each.moves, each.copies, each.elects) for each in plans] == [
        ((2,), 2, True, True, True)
    ] * 2


def test_a_leader_that_is_not_the_first_replica_changes_without_a_copy() -> None:
    carried = {ZERO: CarriedPartition(2, (1, 2)), ONE: CarriedPartition(2, (2, 1))}
    [plan] = plan_rebalance(carried, [1, 2])
    assert (plan.partition, plan.leader, plan.moves, plan.copies, plan.elects) == (ZERO, 1, False, False, True)


def test_a_broker_that_does_not_run_is_not_made_a_leader() -> None:
    carried = {ZERO: CarriedPartition(1, (3, 1, 2)), ONE: CarriedPartition(2, (2, 3, 1))}
    assert plan_rebalance(carried, [1, 2]) == [], "every broker that runs has a replica already"
