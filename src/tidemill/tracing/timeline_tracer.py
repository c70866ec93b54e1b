"""Spans of timed messages: schedule, lease, and complete or release.

A message does not carry its trace, so the broker that scheduled it remembers the trace until the message is completed.
What is remembered is bounded and in memory only: after a restart, or when another broker delivers the message, its
lease has no span.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from tidemill.tracing.core.sampling import Sampler
from tidemill.tracing.core.trace_context import TraceContext
from tidemill.tracing.span import Attributes, FinishedSpan, SpanKind
from tidemill.tracing.span_queue import SpanQueue

MESSAGES_REMEMBERED_MAX = 50_000
MESSAGES_OF_CALL_MAX = 1_000
"""The most messages of one call whose traces are remembered."""
NAME_SHOWN_CHARS = 200
NS_PER_MS = 1_000_000

Key = TypeVar("Key")


class TracedMessage(NamedTuple):
    """A span that later ones follow, and when it ended."""

    id: str
    trace_id: int
    span_id: int
    since_ns: int


class _Remembered(Generic[Key]):
    """A bounded map; the oldest entries are forgotten first."""

    def __init__(self) -> None:
        self._found: OrderedDict[Key, TracedMessage] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._found)

    def put(self, key: Key, message: TracedMessage) -> None:
        self._found[key] = message
        self._found.move_to_end(key)
        if len(self._found) > MESSAGES_REMEMBERED_MAX:
            self._found.popitem(last=False)

    def get(self, key: Key) -> TracedMessage | None:
        return self._found.get(key)

    def pop(self, key: Key) -> TracedMessage | None:
        return self._found.pop(key, None)


class TimelineTracer:
    """Makes the spans of one broker's timed messages."""

    def __init__(
        self, queue: SpanQueue, sampler: Sampler, now_ns: Callable[[], int], new_span_id: Callable[[], int]
    ) -> None:
        self._queue = queue
        self._sampler = sampler
        self.now_ns = now_ns
        self._new_span_id = new_span_id
        self._waiting: _Remembered[tuple[str, str]] = _Remembered()
        self._leased: _Remembered[tuple[str, int, int]] = _Remembered()

    def scheduled(self, timeline: str, context: TraceContext | None, ids: Sequence[str], started_ns: int) -> None:
        """A call with this context has stored messages."""
        if context is None or not ids or not self._sampler.samples(context):
            return
        span_id, now_ns = self._new_span_id(), self.now_ns()
        self._queue.add(
            FinishedSpan(
                f"schedule {timeline}",
                SpanKind.SERVER,
                context.trace_id,
                span_id,
                context.span_id,
                started_ns,
                now_ns,
                (*_attributes(timeline, ids[0]), ("messaging.batch.message_count", len(ids))),
            )
        )
        for message_id in ids[:MESSAGES_OF_CALL_MAX]:
            self._waiting.put((timeline, message_id), TracedMessage(message_id, context.trace_id, span_id, now_ns))

    def leased(
        self, timeline: str, message_id: str, due_ms: int, seq: int, token: int, *, attempts: int, consumer: str
    ) -> None:
        """A message was leased to a consumer. The span starts at the due time, so its length is the lateness."""
        if not self._waiting or (waiting := self._waiting.get((timeline, message_id))) is None:
            return
        span_id, now_ns = self._new_span_id(), self.now_ns()
        more = (("messaging.client.id", consumer[:NAME_SHOWN_CHARS]), ("tidemill.attempts", attempts))
        self._queue.add(
            FinishedSpan(
                f"lease {timeline}",
                SpanKind.SERVER,
                waiting.trace_id,
                span_id,
                waiting.span_id,
                min(max(due_ms * NS_PER_MS, waiting.since_ns), now_ns),
                now_ns,
                (*_attributes(timeline, message_id), *more),
            )
        )
        self._leased.put((timeline, seq, token), TracedMessage(message_id, waiting.trace_id, span_id, now_ns))

    def settled(self, timeline: str, operation: str, seq: int, token: int, *, is_last: bool, error: str = "") -> None:
        """A consumer has ended its lease. The span starts with the lease, so its length is the work of the consumer.

        `is_last`: the message is gone, and needs to be remembered no longer.
        """
        if not self._leased or (lease := self._leased.pop((timeline, seq, token))) is None:
            return
        self._queue.add(
            FinishedSpan(
                f"{operation} {timeline}",
                SpanKind.SERVER,
                lease.trace_id,
                self._new_span_id(),
                lease.span_id,
                lease.since_ns,
                max(lease.since_ns, self.now_ns()),
                _attributes(timeline, lease.id),
                error,
            )
        )
        if is_last and not error:
            self._waiting.pop((timeline, lease.id))


def _attributes(timeline: str, message_id: str) -> Attributes:
    return (
        ("messaging.system", "tidemill"),
        ("messaging.destination.name", timeline),
        ("messaging.message.id", message_id[:NAME_SHOWN_CHARS]),
    )
