"""Spans of records: produce and append at the leader, replicate at each follower, fetch at each reader.

The broker that appends or copies a batch remembers its traces, so a fetch of recent batches finds them without opening
a batch again. What is remembered is bounded: the oldest batches have no spans of fetches any more.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from tidemill.model.errors import KafkaError
from tidemill.model.metrics import CounterReading, MetricReading
from tidemill.records.header import BatchHeader, Buffer, iter_headers, read_header
from tidemill.tracing.core.batch_traces import RecordTrace, traces_in
from tidemill.tracing.core.opening_budget import OpeningBudget
from tidemill.tracing.core.sampling import Sampler
from tidemill.tracing.core.trace_context import append_span_id
from tidemill.tracing.span import Attributes, FinishedSpan, SpanKind
from tidemill.tracing.span_queue import SpanQueue

BATCHES_REMEMBERED_MAX = 10_000
FETCHES_MAX = 16
"""The most fetches of one batch that get spans."""
NAME_SHOWN_CHARS = 200
NS_PER_S = 1_000_000_000
OFFSET_MAX = 2**63 - 1

Place = tuple[str, int]
"""A topic and a partition."""


class TracedBatch:
    """A batch that is remembered: its traces, when it was there, and how often it was fetched."""

    __slots__ = ("fetches", "since_ns", "traces")

    def __init__(self, traces: Sequence[RecordTrace], since_ns: int) -> None:
        self.traces = traces
        self.since_ns = since_ns
        self.fetches = 0


class RecordTracer:
    """Makes the spans of one broker's records."""

    def __init__(
        self, queue: SpanQueue, sampler: Sampler, now_ns: Callable[[], int], new_span_id: Callable[[], int]
    ) -> None:
        self._queue = queue
        self._sampler = sampler
        self.now_ns = now_ns
        self._new_span_id = new_span_id
        self._budget = OpeningBudget()
        self._batches: dict[Place, dict[int, TracedBatch]] = {}
        self._order: deque[tuple[Place, int]] = deque()
        self._skipped = 0

    def produced(
        self, topic: str, partition: int, batch: Buffer, base_offset: int, started_ns: int, client_id: str = ""
    ) -> None:
        """A batch of a producer was appended, and was acknowledged as its acks demand."""
        header = read_header(batch)
        traces = self._traces(topic, batch, header)
        place = (topic, partition)
        if not traces or base_offset < 0 or base_offset in self._batches.get(place, ()):
            return  # a batch that was sent again is the same append
        now_ns = self.now_ns()
        for trace in traces:
            context, attributes = trace.context, _attributes(topic, partition, base_offset + trace.offset_delta)
            produce_id = self._new_span_id()
            common = (*attributes, ("messaging.batch.message_count", header.count))
            self._queue.add(
                FinishedSpan(
                    f"produce {topic}",
                    SpanKind.SERVER,
                    context.trace_id,
                    produce_id,
                    context.span_id,
                    started_ns,
                    now_ns,
                    (*common, *_client(client_id)),
                )
            )
            self._queue.add(
                FinishedSpan(
                    f"append {topic}",
                    SpanKind.INTERNAL,
                    context.trace_id,
                    append_span_id(context, topic, partition, base_offset),
                    produce_id,
                    started_ns,
                    now_ns,
                    common,
                )
            )
        self._remember(place, base_offset, TracedBatch(traces, now_ns))

    def replicated(
        self, topic: str, partition: int, records: Buffer, end_offset: int, started_ns: int, leader: int
    ) -> None:
        """Batches of the leader were appended here; those up to `end_offset` are in the log."""
        for position, header in _headers(records):
            if header.next_offset > end_offset:
                return
            traces = self._traces(topic, memoryview(records)[position:], header)
            if traces:
                self._copied(topic, partition, header.base_offset, traces, started_ns, leader)

    def _copied(
        self, topic: str, partition: int, base_offset: int, traces: Sequence[RecordTrace], started_ns: int, leader: int
    ) -> None:
        now_ns = self.now_ns()
        for trace in traces:
            self._queue.add(
                FinishedSpan(
                    f"replicate {topic}",
                    SpanKind.CLIENT,
                    trace.context.trace_id,
                    self._new_span_id(),
                    append_span_id(trace.context, topic, partition, base_offset),
                    started_ns,
                    now_ns,
                    (
                        *_attributes(topic, partition, base_offset + trace.offset_delta),
                        ("tidemill.leader.id", leader),
                    ),
                )
            )
        self._remember((topic, partition), base_offset, TracedBatch(traces, now_ns))

    def fetched(
        self,
        topic: str,
        partition: int,
        chunks: Iterable[Buffer],
        started_ns: int,
        client_id: str = "",
        *,
        before_offset: int = OFFSET_MAX,
    ) -> None:
        """Batches that begin before an offset were read for a client."""
        known = self._batches.get((topic, partition))
        if not known:
            return
        for chunk in chunks:
            for _, header in _headers(chunk):
                batch = known.get(header.base_offset) if header.base_offset < before_offset else None
                if batch is not None and batch.fetches < FETCHES_MAX:
                    batch.fetches += 1
                    self._read(topic, partition, header.base_offset, batch, started_ns, client_id)

    def _read(
        self, topic: str, partition: int, base_offset: int, batch: TracedBatch, started_ns: int, client_id: str
    ) -> None:
        now_ns = self.now_ns()
        for trace in batch.traces:
            self._queue.add(
                FinishedSpan(
                    f"fetch {topic}",
                    SpanKind.SERVER,
                    trace.context.trace_id,
                    self._new_span_id(),
                    append_span_id(trace.context, topic, partition, base_offset),
                    min(max(started_ns, batch.since_ns), now_ns),  # a fetch that waited starts with the batch
                    now_ns,
                    (
                        *_attributes(topic, partition, base_offset + trace.offset_delta),
                        *_client(client_id),
                    ),
                )
            )

    def _traces(self, topic: str, batch: Buffer, header: BatchHeader) -> Sequence[RecordTrace]:
        if not self._budget.may_open(topic, self.now_ns() // NS_PER_S):
            self._skipped += 1
            return ()
        opened = traces_in(batch, header, self._sampler)
        self._budget.spend(topic, opened.opened_bytes)
        return opened.traces

    def _remember(self, place: Place, base_offset: int, batch: TracedBatch) -> None:
        self._batches.setdefault(place, {})[base_offset] = batch
        self._order.append((place, base_offset))
        if len(self._order) > BATCHES_REMEMBERED_MAX:
            oldest, offset = self._order.popleft()
            known = self._batches.get(oldest, {})
            known.pop(offset, None)
            if not known:
                self._batches.pop(oldest, None)

    def readings(self) -> Iterator[MetricReading]:
        """The metrics of the tracer."""
        yield CounterReading(
            "tidemill_trace_batches_skipped",
            "Batches whose headers were not read, because their topic has much traffic.",
            self._skipped,
        )


def _attributes(topic: str, partition: int, offset: int) -> Attributes:
    return (
        ("messaging.system", "kafka"),
        ("messaging.destination.name", topic),
        ("messaging.destination.partition.id", str(partition)),
        ("messaging.kafka.offset", offset),
    )


def _client(client_id: str) -> Attributes:
    return (("messaging.client.id", client_id[:NAME_SHOWN_CHARS]),) if client_id else ()


def _headers(records: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    try:
        yield from iter_headers(records, partial_ok=True)
    except KafkaError:
        return
