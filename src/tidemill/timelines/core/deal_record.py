"""The deal as brokers keep it in coordination, so that the next deal moves as few buckets as possible from it.

Only the primaries are recorded. The backups follow from them and from the racks, so that the record stays small and
every broker, also one that has just started, computes the same backups.
"""

import json
from types import MappingProxyType

from tidemill.timelines.core.buckets import BucketRange, Cover
from tidemill.timelines.core.dealer import Deal, DealtConsumer

RECORD_BYTES_MAX = 1_000_000
"""A larger deal is not recorded: coordination has limits. The next one then moves more buckets than necessary."""


def without_backups(deal: Deal | None) -> Deal | None:
    """What a record of the deal has."""
    return None if deal is None else Deal(deal.members, deal.primary, MappingProxyType({}))


def encode_deal(deal: Deal) -> bytes | None:
    """Encode the primaries; None if they are too large."""
    place = {member.id: at for at, member in enumerate(deal.members)}
    pieces = [number for piece in deal.primary.pieces for number in (piece.size, place[piece.owner])]
    document = {"members": [list(member) for member in deal.members], "pieces": pieces}
    record = json.dumps(document, separators=(",", ":")).encode()
    return record if len(record) <= RECORD_BYTES_MAX else None


def decode_deal(record: bytes, buckets: int) -> Deal | None:
    """Decode the output of `encode_deal`; None for a record that is not a deal of these buckets."""
    try:
        document = json.loads(record)
        members = tuple(DealtConsumer(str(name), str(rack)) for name, rack in document["members"])
        numbers = [int(number) for number in document["pieces"]]
        pieces, start = [], 0
        for size, owner in zip(numbers[::2], numbers[1::2], strict=True):
            if size < 1 or owner < 0:
                return None
            pieces.append(BucketRange(start, start + size - 1, members[owner].id))
            start += size
    except (ValueError, KeyError, IndexError, TypeError):
        return None
    return Deal(members, Cover(tuple(pieces)), MappingProxyType({})) if start == buckets else None
