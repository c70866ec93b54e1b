"""Spans of the broker in the form that OpenTelemetry's exporter takes."""

from collections.abc import Iterable

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from tidemill.tracing.span import FinishedSpan

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


def readable_spans(
    spans: Iterable[FinishedSpan], resource: Resource, scope: InstrumentationScope
) -> list[ReadableSpan]:
    """The spans, each with the resource of this broker."""
    return [_readable(span, resource, scope) for span in spans]


def _readable(span: FinishedSpan, resource: Resource, scope: InstrumentationScope) -> ReadableSpan:
    return ReadableSpan(
        span.name,
        SpanContext(span.trace_id, span.span_id, is_remote=False, trace_flags=_SAMPLED),
        SpanContext(span.trace_id, span.parent_id, is_remote=True, trace_flags=_SAMPLED),
        resource,
        dict(span.attributes),
        kind=SpanKind[span.kind],
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=scope,
    )
