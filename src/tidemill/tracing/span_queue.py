"""Finished spans that wait for the exporter. The queue is bounded: a collector that does not answer costs no memory."""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from tidemill.model.metrics import CounterReading, MetricReading
from tidemill.tracing.span import FinishedSpan

SPANS_MAX = 2048
QUEUE_FULL, EXPORT_FAILED = "queue full", "export failed"


class SpanQueue:
    """Keeps spans until `take`; counts those that are lost."""

    def __init__(self, spans_max: int = SPANS_MAX, on_half: Callable[[], None] = lambda: None) -> None:
        self._spans: deque[FinishedSpan] = deque()
        self._spans_max = spans_max
        self.on_half = on_half
        """Called when the queue is half full, so that the exporter does not wait for its next turn."""
        self.exported = 0
        self.dropped = {QUEUE_FULL: 0, EXPORT_FAILED: 0}

    def __len__(self) -> int:
        return len(self._spans)

    def add(self, span: FinishedSpan) -> None:
        """Add a span, or drop it if the queue is full."""
        if len(self._spans) >= self._spans_max:
            self.dropped[QUEUE_FULL] += 1
            return
        self._spans.append(span)
        if len(self._spans) == self._spans_max // 2:
            self.on_half()

    def take(self, count: int) -> list[FinishedSpan]:
        """Remove the oldest spans."""
        taken = list(islice(self._spans, count))
        for _ in taken:
            self._spans.popleft()
        return taken

    def readings(self) -> Iterator[MetricReading]:
        """The metrics of the export."""
        yield CounterReading("tidemill_spans_exported", "Spans that the collector has accepted.", self.exported)
        for reason, count in self.dropped.items():
            yield CounterReading(
                "tidemill_spans_dropped", "Spans that were lost before the collector.", count, (("reason", reason),)
            )
