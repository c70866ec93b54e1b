"""What a client says about records that it acquired: ranges of offsets, each with one type or one type per record."""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple

from tidemill.model.errors import InvalidRequest

OFFSETS_MAX = 1_000_000
"""The most types of one batch."""


class AckType(IntEnum):
    """Kafka's numbers."""

    GAP = 0
    """There is no record at this offset."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    """The client goes on with the record; its lock starts again."""


class AckBatch(NamedTuple):
    """The acknowledgement of a range of offsets."""

    first: int
    last: int
    types: tuple[int, ...]

    def runs(self) -> Iterator[tuple[int, int, AckType]]:
        """Each range of offsets with the same type."""
        if len(self.types) == 1:
            yield self.first, self.last, AckType(self.types[0])
            return
        offset = self.first
        for kind, group in groupby(self.types):
            count = sum(1 for _ in group)
            yield offset, offset + count - 1, AckType(kind)
            offset += count


def check_batches(batches: Sequence[AckBatch], *, may_renew: bool) -> None:
    """Reject batches that are not in order, overlap, or have types that do not fit."""
    previous = -1
    newest = AckType.RENEW if may_renew else AckType.REJECT
    for batch in batches:
        if batch.first > batch.last or batch.first <= previous:
            raise InvalidRequest(
                f"acknowledged offsets {batch.first} to {batch.last} are not after {previous}; send ranges in order"
            )
        if not batch.types:
            raise InvalidRequest(f"the acknowledgement of offsets {batch.first} to {batch.last} has no type")
        if len(batch.types) > 1 and len(batch.types) != batch.last - batch.first + 1:
            raise InvalidRequest(
                f"the acknowledgement of offsets {batch.first} to {batch.last} has {len(batch.types)} types; "
                "send one, or one for each offset"
            )
        if not all(AckType.GAP <= kind <= newest for kind in batch.types):
            raise InvalidRequest(f"an acknowledgement type is not supported; use 0 to {int(newest)}")
        previous = batch.last
