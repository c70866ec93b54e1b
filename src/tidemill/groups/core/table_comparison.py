"""Compares the table of committed offsets with what was written to it, and says what is wrong.

The journal decides which offset a group has. The table is a copy, so a row that differs from it is wrong: it was
written by hand, or late by a broker that does not coordinate the group any more, or it was lost. A row counts by its
commit time, so a wrong row that is newer than the journal's must be deleted before the right one is written.
"""

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

from tidemill.groups.core.overview import SeenOffset

OffsetPlace = tuple[str, str, int]
"""Group, topic, partition."""
OFFSETS_KEPT_MS = 8 * 7 * 86_400_000
"""The table drops rows of older commits, while the journal keeps their offsets."""


class DifferenceKind(StrEnum):
    """What is wrong with the table."""

    MISSING = "missing"  # it has no row
    STALE = "stale"  # its newest row is older than the journal's
    FOREIGN = "foreign"  # its newest row is not older, and has another value: no broker of the group wrote it
    EXTRA = "extra"  # the journal has no such offset


class TableOffset(NamedTuple):
    """The newest row of a partition. Rows with the same time are two: those with the highest and lowest offset."""

    offset: int
    leader_epoch: int
    metadata: str
    deleted: bool
    commit_ms: int


class OffsetDifference(NamedTuple):
    """A wrong row. `right` is what the journal has; None: no offset."""

    place: OffsetPlace
    kind: DifferenceKind
    found: TableOffset | None
    right: SeenOffset | None

    @property
    def must_delete_from_ms(self) -> int | None:
        """The commit time from which on rows are wrong and must be deleted; None if newer rows hide them."""
        if self.kind is DifferenceKind.EXTRA:
            return 0
        return self.right.commit_ms if self.kind is DifferenceKind.FOREIGN and self.right is not None else None


def differences(
    right: Mapping[OffsetPlace, SeenOffset], found: Mapping[OffsetPlace, Collection[TableOffset]], now_ms: int
) -> Iterator[OffsetDifference]:
    """Yield what is wrong in the table, in order of the places."""
    for place in sorted(right.keys() | found.keys()):
        difference = _difference(place, right.get(place), found.get(place, ()), now_ms)
        if difference is not None:
            yield difference


def _difference(
    place: OffsetPlace, right: SeenOffset | None, rows: Collection[TableOffset], now_ms: int
) -> OffsetDifference | None:
    if right is None:
        kept = [each for each in rows if not each.deleted]
        return OffsetDifference(place, DifferenceKind.EXTRA, kept[0], None) if kept else None
    if not rows:
        is_expired = now_ms - right.commit_ms >= OFFSETS_KEPT_MS
        return None if is_expired else OffsetDifference(place, DifferenceKind.MISSING, None, right)
    wrong = [each for each in rows if each != _row_of(right)]
    if not wrong:
        return None
    kind = DifferenceKind.STALE if wrong[0].commit_ms < right.commit_ms else DifferenceKind.FOREIGN
    return OffsetDifference(place, kind, wrong[0], right)


def _row_of(offset: SeenOffset) -> TableOffset:
    return TableOffset(offset.offset, offset.leader_epoch, offset.metadata, deleted=False, commit_ms=offset.commit_ms)
