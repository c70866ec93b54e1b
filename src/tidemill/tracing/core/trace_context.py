"""The trace context of the W3C: which trace a record or a call belongs to, as its header `traceparent` says.

The text comes from clients. Anything that is not a valid context is no context; it never is an error.
"""

import re
from hashlib import blake2b
from typing import NamedTuple

TRACEPARENT = "traceparent"
VALUE_BYTES_MAX = 512
"""A longer header is ignored. A context has 55 bytes; versions of the future may have more."""
SAMPLED_FLAG = 0x01
_FIRST_VERSION = b"00"
_VALUE = re.compile(rb"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[ -~]*)?")


class TraceContext(NamedTuple):
    """A span of a client: the trace that it belongs to, its own id, and whether the client records it."""

    trace_id: int
    span_id: int
    is_sampled: bool


def parse_traceparent(value: bytes | str) -> TraceContext | None:
    """Read a header; None unless it is valid."""
    if len(value) > VALUE_BYTES_MAX:
        return None
    text = value if isinstance(value, bytes) else value.encode("ascii", "replace")
    match = _VALUE.fullmatch(text)
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if more is not None and version == _FIRST_VERSION:
        return None
    context = TraceContext(int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & SAMPLED_FLAG))
    return context if context.trace_id and context.span_id else None


def format_traceparent(context: TraceContext) -> str:
    """Write a header of version 00."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{SAMPLED_FLAG * context.is_sampled:02x}"


def append_span_id(parent: TraceContext, topic: str, partition: int, base_offset: int) -> int:
    """The id of the span of an append.

    Every replica computes the same id from the batch and its place. So followers and readers name the append as the
    parent of their spans, and no message between brokers has to carry it.
    """
    place = f"{parent.trace_id:032x}{parent.span_id:016x} {partition} {base_offset} {topic}".encode()
    return int.from_bytes(blake2b(place, digest_size=8).digest()) or 1
