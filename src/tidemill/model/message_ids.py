"""Ids for messages without an id from their producer: the time first, then random bits.

Ids that increase with time are adjacent in a store's index, so that a batch of new messages touches a few pages of it.
Random ids would touch a page each, which makes every message of a long timeline expensive.
"""

RANDOM_BITS = 80
TIME_MASK = (1 << 48) - 1
TIME_CHARS, ID_CHARS = 12, 32


def new_id(now_ms: int, random_bits: int) -> str:
    """Return 32 hexadecimal digits: 48 bits of time in milliseconds, and `RANDOM_BITS` bits from the caller."""
    return f"{now_ms & TIME_MASK:012x}{random_bits:020x}"


def drawn_ms(message_id: str) -> int:
    """The time at which this id was drawn; -1 when a producer chose it. Its own hexadecimal digits are any time."""
    if len(message_id) != ID_CHARS:
        return -1
    try:
        return int(message_id[:TIME_CHARS], 16)
    except ValueError:
        return -1
