"""Dealers: how the buckets of a timeline are dealt to its consumers.

*Simple ranges*: the consumers, in the order of their ids, get even ranges. This needs no state, so brokers agree
without messages. But when a consumer leaves, nearly every range shifts, and there is no backup for it.

*Rack-aware*: every bucket has one primary consumer, and a backup in every rack other than the primary's. Each rack by
itself covers all buckets, so any one rack can carry the whole timeline. Consumers start at the front of their own
buckets and backups at the far end of theirs. When both try to take a message, the lease decides. Racks may differ in
size:

- primaries are divided evenly among all consumers in all racks (shares differ by at most one bucket);
- the backups of each rack are divided so that the total loads of its members differ by at most one bucket; a rack with
  one consumer backs up all buckets that are not its own.

Movement is minimal because the deal starts from the previous one. When a consumer leaves, only its buckets move. When
one joins, it takes an equal part from every consumer and nothing else moves. Each join cuts ranges, so after many joins
they would become very small. Beyond PIECES_PER_MEMBER_MAX ranges of primaries the dealer deals from scratch: one large
move instead of dealing that stays slow.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from tidemill.timelines.core.buckets import (
    NO_OWNER,
    BucketRange,
    Cover,
    join,
    overlay,
    quotas,
    rebalance,
    shares,
    split,
)

PIECES_PER_MEMBER_MAX = 16


class DealtConsumer(NamedTuple):
    """A consumer and its rack."""

    id: str
    rack: str = ""


class Share(NamedTuple):
    """The work of one consumer: its own ranges front to back, then its backup ranges from the far end."""

    own: tuple[tuple[int, int], ...]
    backup: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Deal:
    """The owners of the buckets: the primary of each, and its backup in each rack."""

    members: tuple[DealtConsumer, ...]
    primary: Cover
    racks: Mapping[str, Cover]

    def candidates(self, bucket: int) -> tuple[str, ...]:
        """The primary of the bucket, then its backups in the order of their racks."""
        first = self.primary.owner(bucket)
        return first, *(name for cover in self.racks.values() if (name := cover.owner(bucket)) != first)

    def share(self, member: DealtConsumer) -> Share:
        """The ranges of one consumer."""
        own = self.primary.ranges(member.id)
        cover = self.racks.get(member.rack)
        if cover is None:
            return Share(own, ())
        pieces = overlay([piece for piece in cover.pieces if piece.owner == member.id], self.primary.pieces)
        backup = join(piece for piece, primary in pieces if primary != member.id)
        return Share(own, tuple((piece.start, piece.end) for piece in backup)[::-1])


def deal_ranges(members: Sequence[DealtConsumer], buckets: int) -> Deal | None:
    """Even ranges in the order of the consumers' ids, without backups; None without consumers."""
    if not members:
        return None
    ordered = tuple(sorted(members))
    return Deal(ordered, split(buckets, [member.id for member in ordered]), MappingProxyType({}))


def deal_racks(members: Sequence[DealtConsumer], buckets: int, previous: Deal | None = None) -> Deal | None:
    """Deal to racks of any size, moving as little as possible from the previous deal; None without consumers."""
    if not members:
        return None
    ordered = tuple(sorted(members, key=lambda member: (member.rack, member.id)))
    deal = _deal(ordered, buckets, previous)
    splintered = previous is not None and len(deal.primary.pieces) > PIECES_PER_MEMBER_MAX * len(ordered)
    return _deal(ordered, buckets, None) if splintered else deal


def _deal(members: tuple[DealtConsumer, ...], buckets: int, previous: Deal | None) -> Deal:
    names = [member.id for member in members]
    if previous is None or previous.primary.pieces[-1].end + 1 != buckets:
        previous = None
        primary = split(buckets, names)
    else:
        primary = _primary(names, buckets, previous.primary)
    racks: dict[str, Cover] = {}
    for rack in sorted({member.rack for member in members}):
        inside = [member.id for member in members if member.rack == rack]
        before = previous.racks.get(rack) if previous else None
        racks[rack] = _rack(inside, buckets, primary, before)
    return Deal(members, primary, MappingProxyType(racks))


def _primary(names: Sequence[str], buckets: int, before: Cover) -> Cover:
    return Cover(tuple(rebalance(before.pieces, quotas(buckets, names, before.shares(), {}))))


def _rack(names: Sequence[str], buckets: int, primary: Cover, before: Cover | None) -> Cover:
    """The cover of one rack: members keep their own buckets, and the rest is divided so that total loads are even."""
    inside = set(names)
    lower = before.pieces if before else (BucketRange(0, buckets - 1, NO_OWNER),)
    own, foreign = [], []
    for piece, owner in overlay(primary.pieces, lower):
        if piece.owner in inside:
            own.append(piece)
        else:
            foreign.append(BucketRange(piece.start, piece.end, owner if owner in inside else NO_OWNER))
    owned = shares(own)
    held = shares([*own, *foreign])
    whole = quotas(buckets, names, held, owned)
    backups = rebalance(list(join(foreign)), {name: whole[name] - owned.get(name, 0) for name in names})
    return Cover(tuple(join(sorted([*own, *backups]))))
