"""Buckets, by which messages are divided among consumers, and covers, which map every bucket to an owner.

Each message gets a random bucket when it is scheduled, so ranges of buckets are equal shares of the work. A cover is
stored as ranges: dealing 65,536 buckets to a few hundred consumers handles a few hundred ranges, not 65,536 entries.

`rebalance` moves as little as possible. Every owner keeps its buckets up to its quota, and whole small ranges are
released before large ones are cut. A free range goes to the owner of the adjacent range if its quota allows. So ranges
that were cut when a consumer joined grow together again when it leaves.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

BUCKETS = 65_536  # a bucket is an unsigned 16-bit number
NO_OWNER = ""


class BucketRange(NamedTuple):
    """The buckets `start` to `end`, both included, and their owner."""

    start: int
    end: int
    owner: str

    @property
    def size(self) -> int:
        """The number of buckets."""
        return self.end - self.start + 1


@dataclass(frozen=True, slots=True)
class Cover:
    """An owner for every bucket: pieces in order, without gaps."""

    pieces: tuple[BucketRange, ...]
    _starts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_starts", tuple(piece.start for piece in self.pieces))

    def owner(self, bucket: int) -> str:
        """The owner of this bucket."""
        return self.pieces[bisect_right(self._starts, bucket) - 1].owner

    def ranges(self, owner: str) -> tuple[tuple[int, int], ...]:
        """The ranges of one owner."""
        return tuple((piece.start, piece.end) for piece in self.pieces if piece.owner == owner)

    def shares(self) -> dict[str, int]:
        """The number of buckets of each owner."""
        return shares(self.pieces)


def split(buckets: int, owners: Sequence[str]) -> Cover:
    """Even ranges in the order of the owners; sizes differ by at most one."""
    count = len(owners)
    edges = [(2 * index * buckets + count) // (2 * count) for index in range(count + 1)]
    pieces = zip(edges, edges[1:], owners, strict=False)
    return Cover(tuple(BucketRange(start, end - 1, owner) for start, end, owner in pieces if end > start))


def shares(pieces: Iterable[BucketRange]) -> dict[str, int]:
    """The number of buckets of each owner."""
    held: dict[str, int] = {}
    for piece in pieces:
        held[piece.owner] = held.get(piece.owner, 0) + piece.size
    return held


def quotas(buckets: int, members: Sequence[str], held: Mapping[str, int], least: Mapping[str, int]) -> dict[str, int]:
    """Even quotas; the odd buckets go where they are needed (`least`) or already are (`held`)."""
    base, odd = divmod(buckets, len(members))
    order = sorted(members, key=lambda name: (-max(0, least.get(name, 0) - base), -held.get(name, 0), name))
    return {name: base + (place < odd) for place, name in enumerate(order)}


def rebalance(pieces: Sequence[BucketRange], quota: Mapping[str, int]) -> list[BucketRange]:
    """Give every owner its quota of the pieces' buckets and move as few buckets as possible.

    The quotas add up to the buckets of the pieces. Owners without a quota (also NO_OWNER) lose their buckets.
    """
    kept, free = _release(pieces, quota)
    held = shares(kept)
    need = {name: count - held.get(name, 0) for name, count in quota.items() if count > held.get(name, 0)}
    rest = _give_to_neighbours(kept, free, need)
    kept.extend(_give_to_neediest(rest, need))
    kept.sort()
    return list(join(kept))


def join(pieces: Iterable[BucketRange]) -> Iterator[BucketRange]:
    """The same pieces, in order, with adjacent pieces of one owner joined."""
    last: BucketRange | None = None
    for piece in pieces:
        if last is not None and last.owner == piece.owner and last.end + 1 == piece.start:
            last = BucketRange(last.start, piece.end, piece.owner)
            continue
        if last is not None:
            yield last
        last = piece
    if last is not None:
        yield last


def overlay(upper: Sequence[BucketRange], lower: Sequence[BucketRange]) -> Iterator[tuple[BucketRange, str]]:
    """Both covers at once: the pieces of `upper` cut where `lower` changes, each with its owner in `lower`."""
    below = iter(lower)
    under = next(below)
    for piece in upper:
        start = piece.start
        while start <= piece.end:
            while under.end < start:
                under = next(below)
            end = min(piece.end, under.end)
            yield BucketRange(start, end, piece.owner), under.owner
            start = end + 1


def _release(pieces: Sequence[BucketRange], quota: Mapping[str, int]) -> tuple[list[BucketRange], list[BucketRange]]:
    """The kept pieces, and the buckets above the quotas: small pieces whole, then the tail of a larger one."""
    excess = {name: count - quota.get(name, 0) for name, count in shares(pieces).items()}
    kept, free = [], []
    for piece in sorted(pieces, key=lambda one: (one.size, one.start)):
        surplus = min(excess[piece.owner], piece.size)
        if surplus <= 0:
            kept.append(piece)
            continue
        excess[piece.owner] -= surplus
        cut = piece.end - surplus
        free.append(BucketRange(cut + 1, piece.end, NO_OWNER))
        if cut >= piece.start:
            kept.append(BucketRange(piece.start, cut, piece.owner))
    kept.sort()
    return kept, list(join(sorted(free)))


def _give_to_neighbours(kept: list[BucketRange], free: list[BucketRange], need: dict[str, int]) -> list[BucketRange]:
    """Give free pieces to the owners of adjacent pieces, as far as their quotas allow; the remaining pieces."""
    ends = {piece.end + 1: piece.owner for piece in kept}
    starts = {piece.start - 1: piece.owner for piece in kept}
    rest = []
    for piece in free:
        start, end = piece.start, piece.end
        left, right = ends.get(start, NO_OWNER), starts.get(end, NO_OWNER)
        given = min(need.get(left, 0), end - start + 1)
        if given:
            kept.append(BucketRange(start, start + given - 1, left))
            need[left] -= given
            start += given
        given = min(need.get(right, 0), end - start + 1)
        if given:
            kept.append(BucketRange(end - given + 1, end, right))
            need[right] -= given
            end -= given
        if start <= end:
            rest.append(BucketRange(start, end, NO_OWNER))
    return rest


def _give_to_neediest(free: list[BucketRange], need: Mapping[str, int]) -> Iterator[BucketRange]:
    """Distribute the rest, large pieces to the owners that need most, so that few pieces are cut."""
    queue = sorted(free, key=lambda piece: (piece.size, -piece.start))
    for name, wanted in sorted(need.items(), key=lambda entry: (-entry[1], entry[0])):
        missing = wanted
        while missing > 0:
            piece = queue.pop()
            given = min(missing, piece.size)
            yield BucketRange(piece.start, piece.start + given - 1, name)
            missing -= given
            if given < piece.size:
                queue.append(BucketRange(piece.start + given, piece.end, NO_OWNER))
