"""A rebalance as a document, for the JSON API and for `tidemill cluster rebalance --json`. Pure."""

from collections.abc import Sequence

from tidemill.cluster.core.rebalance_plan import PartitionPlan
from tidemill.wire.http.cluster import MOVES_MAX, PROBLEMS_MAX, PlannedMove, RebalanceOutcome


def outcome_of(plans: Sequence[PartitionPlan], problems: Sequence[str] = (), *, is_preview: bool) -> RebalanceOutcome:
    """The document of a rebalance."""
    moves = [
        PlannedMove(
            partition=str(plan.partition),
            leader=plan.before.leader,
            new_leader=plan.leader,
            replicas=list(plan.before.replicas),
            new_replicas=list(plan.replicas),
            copies=plan.copies,
        )
        for plan in plans[:MOVES_MAX]
    ]
    shown = list(problems[:PROBLEMS_MAX])
    return RebalanceOutcome(dry_run=is_preview, moves=moves, total=len(plans), problems=shown)
