"""Ids for messages whose producer gives none: the time first, then chance.

Ids that grow with time lie side by side in a store's index, so that a batch of new messages touches a few pages of
it. Drawn at random each would touch a page of its own, and a long timeline would pay for it with every message.
"""

RANDOM_BITS = 80
TIME_MASK = (1 << 48) - 1


def new_id(now_ms: int, random_bits: int) -> str:
    """32 hexadecimal digits: 48 bits of time in milliseconds, and `RANDOM_BITS` bits that the caller has drawn."""
    return f"{now_ms & TIME_MASK:012x}{random_bits:020x}"
