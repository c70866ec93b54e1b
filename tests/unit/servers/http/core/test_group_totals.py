"""The lag of a group is the sum of its partitions, and its age that of the oldest record."""

from tidemill.servers.http.core.group_totals import GroupTotals, totals_of
from tidemill.wire.http.groups import GroupPartitionRow


def row(lag: int | None, lag_s: float | None) -> GroupPartitionRow:
    return GroupPartitionRow(
        topic="orders",
        partition=0,
        committed=None,
        end=None,
        lag=lag,
        lag_s=lag_s,
        committed_ms=None,
        metadata="",
        leader_epoch=None,
        is_unstable=None,
        member=None,
        client=None,
        host=None,
    )


def test_totals_of_known_and_unknown_partitions() -> None:
    assert totals_of("shop", [row(3, 1.5), row(0, 0.0), row(None, None), row(4, None)]) == GroupTotals(7, 1.5, 1)


def test_totals_without_a_known_partition() -> None:
    assert totals_of("shop", [row(None, None)]) == GroupTotals(None, None, 1)
    assert totals_of("shop", []) == GroupTotals(None, None, 0)
