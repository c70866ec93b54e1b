"""Bytes of keys, bodies and headers as JSON has them: text where they are text, and base64 otherwise; cut to a size."""

from base64 import b64encode
from typing import NamedTuple

TEXT = "utf-8"


class ShownBytes(NamedTuple):
    """Some bytes for a document: `text` or `base64`, and whether the rest was cut."""

    text: str | None = None
    base64: str | None = None
    is_cut: bool = False


def shown_bytes(value: bytes | None, limit: int) -> ShownBytes:
    """The first `limit` bytes of a value; neither text nor base64 for None."""
    if value is None:
        return ShownBytes()
    is_cut = len(value) > limit
    kept = value[:limit]
    try:
        return ShownBytes(kept.decode(TEXT), None, is_cut)
    except UnicodeDecodeError as error:
        if is_cut and error.reason == "unexpected end of data":  # the cut is inside of a character
            return ShownBytes(kept[: error.start].decode(TEXT), None, is_cut)
    return ShownBytes(None, b64encode(kept).decode("ascii"), is_cut)
