"""A rebalance as a document."""

from tidemill.cluster.core.rebalance_plan import CarriedPartition, PartitionPlan
from tidemill.model.topics import TopicPartition
from tidemill.servers.http.core.rebalance_outcome import outcome_of
from tidemill.wire.http.cluster import MOVES_MAX, PROBLEMS_MAX, PlannedMove


def plan(index: int = 0) -> PartitionPlan:
    return PartitionPlan(TopicPartition("orders", index), CarriedPartition(1, (1, 2)), (3, 1), 3)


def test_a_move_has_what_is_and_what_will_be() -> None:
    outcome = outcome_of([plan()], ["broker 4 does not answer"], is_preview=True)
    [move] = outcome.moves
    assert move == PlannedMove(
        partition="orders-0", leader=1, new_leader=3, replicas=[1, 2], new_replicas=[3, 1], copies=True
    )
    assert (outcome.dry_run, outcome.total, outcome.problems) == (True, 1, ["broker 4 does not answer"])
    assert not outcome_of([], is_preview=False).dry_run


def test_the_document_is_bounded_and_counts_all() -> None:
    problems = [str(number) for number in range(PROBLEMS_MAX + 1)]
    outcome = outcome_of([plan(index) for index in range(MOVES_MAX + 1)], problems, is_preview=False)
    assert (len(outcome.moves), outcome.total, outcome.problems) == (MOVES_MAX, MOVES_MAX + 1, problems[:-1])
