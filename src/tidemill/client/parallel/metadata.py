"""Encodes the records that completed beyond the gap into commit metadata, so that a restart does not repeat them.

The text is `tm1:` and base64 of compressed numbers. The numbers are the lengths of alternating pending and complete
runs, starting at the committed offset. A run takes one or two bytes, so 4,096 bytes hold thousands of gaps. If they do
not fit, the farthest runs are left out. Those records are handled twice after a restart, which at-least-once allows.
Metadata of another program, or damaged metadata, is ignored.
"""

import zlib
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence

from tidemill.client.parallel.offsets import CompletedRun

MARK = "tm1:"
METADATA_BYTES_MAX = 4_096
UNPACKED_BYTES_MAX = 1 << 20


def encode(committed: int, runs: Sequence[CompletedRun], *, limit: int = METADATA_BYTES_MAX) -> str:
    """Metadata for a commit of `committed`. Empty when nothing is complete beyond it."""
    keep = len(runs)
    while keep:
        text = MARK + b64encode(zlib.compress(_lengths(committed, runs[:keep]), 9)).decode()
        if len(text) <= limit:
            return text
        # Take a little less than the share that fits, so that the loop ends after one or two iterations.
        keep = min(keep - 1, keep * limit * 9 // (len(text) * 10))
    return ""


def decode(committed: int, metadata: str | None) -> list[CompletedRun]:
    """The runs in the metadata of a commit of `committed`."""
    if not metadata or not metadata.startswith(MARK):
        return []
    try:
        unpacker = zlib.decompressobj()
        packed = unpacker.decompress(b64decode(metadata[len(MARK) :], validate=True), UNPACKED_BYTES_MAX)
        numbers = _numbers(packed) if unpacker.eof else []
    except (zlib.error, Base64Error, ValueError):
        return []
    runs, place = [], committed
    for waiting, complete in zip(numbers[::2], numbers[1::2], strict=False):
        if complete:
            runs.append(CompletedRun(place + waiting, place + waiting + complete - 1))
        place += waiting + complete
    return runs


def _lengths(committed: int, runs: Sequence[CompletedRun]) -> bytes:
    packed, place = bytearray(), committed
    for run in runs:
        _put(packed, run.first - place)
        _put(packed, run.last - run.first + 1)
        place = run.last + 1
    return bytes(packed)


def _put(packed: bytearray, number: int) -> None:
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    packed.append(number)


def _numbers(packed: bytes) -> list[int]:
    numbers, value, shift = [], 0, 0
    for byte in packed:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            numbers.append(value)
            value, shift = 0, 0
    return numbers
