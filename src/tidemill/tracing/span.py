"""A finished span, as plain values: the exporter turns it into OpenTelemetry's form on its own thread."""

from enum import StrEnum
from typing import NamedTuple

Attributes = tuple[tuple[str, str | int], ...]


class SpanKind(StrEnum):
    """The role of the broker in a span."""

    SERVER = "SERVER"
    INTERNAL = "INTERNAL"
    CLIENT = "CLIENT"


class FinishedSpan(NamedTuple):
    """One operation with its trace, its parent and its time."""

    name: str
    kind: SpanKind
    trace_id: int
    span_id: int
    parent_id: int
    start_ns: int
    end_ns: int
    attributes: Attributes = ()
    error: str = ""
