"""What a broker has if it records traces; a broker that does not has None in its place."""

from collections.abc import Callable, Iterator

from tidemill.model.metrics import MetricReading
from tidemill.tracing.core.sampling import Sampler
from tidemill.tracing.record_tracer import RecordTracer
from tidemill.tracing.span_queue import SPANS_MAX, SpanQueue
from tidemill.tracing.timeline_tracer import TimelineTracer

SPAN_ID_BITS = 64


class BrokerTracer:
    """The tracers of one broker, and the queue of their spans."""

    def __init__(
        self,
        sampler: Sampler,
        now_ns: Callable[[], int],
        random_bits: Callable[[int], int],
        queue_spans_max: int = SPANS_MAX,
    ) -> None:
        def new_span_id() -> int:
            return random_bits(SPAN_ID_BITS) or 1  # 0 is no id

        self.now_ns = now_ns
        self.queue = SpanQueue(queue_spans_max)
        self.records = RecordTracer(self.queue, sampler, now_ns, new_span_id)
        self.timelines = TimelineTracer(self.queue, sampler, now_ns, new_span_id)

    def readings(self) -> Iterator[MetricReading]:
        """The metrics of tracing."""
        yield from self.queue.readings()
        yield from self.records.readings()
