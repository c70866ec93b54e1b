"""The lag of a group in all of its partitions, from the rows of a description."""

from collections.abc import Sequence
from typing import NamedTuple

from tidemill.model.offset_notes import is_note
from tidemill.wire.http.groups import GroupPartitionRow


class GroupTotals(NamedTuple):
    """The sum of the records, the largest age, and the partitions whose lag is not known."""

    records: int | None
    seconds: float | None
    unknown: int


def totals_of(group: str, rows: Sequence[GroupPartitionRow]) -> GroupTotals:
    """The totals of these partitions; None where nothing is known. Notes have no lag, so theirs is not unknown."""
    lags = [row.lag for row in rows if not is_note(group, row.metadata)]
    known = [lag for lag in lags if lag is not None]
    seconds = [row.lag_s for row in rows if row.lag_s is not None]
    return GroupTotals(sum(known) if known else None, max(seconds, default=None), len(lags) - len(known))
