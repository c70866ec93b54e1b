"""Spans of records: who is the parent of whom, and what is bounded."""

from collections.abc import Iterable
from itertools import count

from tidemill.model.metrics import CounterReading
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.header import place
from tidemill.tracing.core.opening_budget import BATCH_COST_MIN, TOPIC_BYTES_PER_S
from tidemill.tracing.core.sampling import Sampler
from tidemill.tracing.record_tracer import BATCHES_REMEMBERED_MAX, FETCHES_MAX, NAME_SHOWN_CHARS, RecordTracer
from tidemill.tracing.span import FinishedSpan
from tidemill.tracing.span_queue import SpanQueue

TRACE_ID, SPAN_ID = 0xABC, 0x7


class Traced:
    """A tracer with a clock that counts its calls, and its spans."""

    def __init__(self, node: int = 0) -> None:
        self.now_ns = 0
        self.queue = SpanQueue(100_000)
        ids = count(node * 1_000_000 + 1)
        self.tracer = RecordTracer(self.queue, Sampler(), lambda: self.now_ns, lambda: next(ids))

    def spans(self) -> list[FinishedSpan]:
        return self.queue.take(100_000)


def batch(base_offset: int = 0, traces: Iterable[int] = (TRACE_ID,)) -> bytearray:
    headers = ((("traceparent", f"00-{trace:032x}-{SPAN_ID:016x}-01".encode()),) for trace in traces)
    made = build_batch([NewRecord(None, b"v", each, 1) for each in headers] or [NewRecord(None, b"v", (), 1)])
    place(made, 0, base_offset, 0)
    return made


def test_the_spans_of_three_brokers_are_one_tree() -> None:
    leader, follower, next_leader = Traced(1), Traced(2), Traced(3)
    leader.now_ns = 20
    leader.tracer.produced("orders", 2, batch(5), 5, started_ns=10, client_id="shop")
    for each in (follower, next_leader):
        each.now_ns = 30
        each.tracer.replicated("orders", 2, batch(5), 6, started_ns=25, leader=1)
    next_leader.now_ns = 50
    next_leader.tracer.fetched("orders", 2, [bytes(batch(5))], started_ns=3, client_id="mailer")
    produced, appended = leader.spans()
    (replicated,) = follower.spans()
    copied, fetched = next_leader.spans()
    assert (produced.trace_id, produced.parent_id) == (TRACE_ID, SPAN_ID)
    assert appended.parent_id == produced.span_id
    assert replicated.parent_id == copied.parent_id == fetched.parent_id == appended.span_id
    assert [each.name for each in (produced, appended, replicated, fetched)] == [
        "produce orders",
        "append orders",
        "replicate orders",
        "fetch orders",
    ]
    assert (produced.start_ns, produced.end_ns) == (10, 20)
    assert (fetched.start_ns, fetched.end_ns) == (30, 50)  # it waited for the batch since 3
    assert dict(replicated.attributes)["tidemill.leader.id"] == 1
    assert dict(fetched.attributes)["messaging.kafka.offset"] == 5


def test_a_batch_that_is_sent_again_is_one_append() -> None:
    traced = Traced()
    traced.tracer.produced("orders", 0, batch(), 0, 0)
    traced.tracer.produced("orders", 0, batch(), 0, 0)
    traced.tracer.produced("orders", 0, batch(), -1, 0)
    assert len(traced.spans()) == 2


def test_batches_without_a_trace_have_no_spans() -> None:
    traced = Traced()
    traced.tracer.produced("orders", 0, batch(traces=()), 0, 0)
    traced.tracer.fetched("orders", 0, [bytes(batch())], 0)
    assert traced.spans() == []


def test_only_what_was_appended_is_replicated() -> None:
    traced = Traced()
    records = bytes(batch(0)) + bytes(batch(1, [1])) + bytes(batch(2, [2]))
    traced.tracer.replicated("orders", 0, records, 2, 0, 1)
    assert [each.trace_id for each in traced.spans()] == [TRACE_ID, 1]
    traced.tracer.replicated("orders", 0, b"\xff" * 100, 2, 0, 1)
    traced.tracer.replicated("orders", 0, b"", 2, 0, 1)
    assert traced.spans() == []


def test_fetches_of_one_batch_are_limited() -> None:
    traced = Traced()
    traced.tracer.produced("orders", 0, batch(), 0, 0)
    for _ in range(FETCHES_MAX + 3):
        traced.tracer.fetched("orders", 0, [bytes(batch(9)), bytes(batch(0)), b"\x00"], 0)
        traced.tracer.fetched("orders", 1, [bytes(batch(0))], 0)
    assert len(traced.spans()) == 2 + FETCHES_MAX


def test_the_oldest_batches_are_forgotten() -> None:
    traced = Traced()
    for number in range(BATCHES_REMEMBERED_MAX + 1):
        traced.now_ns = number * 2_000_000_000 // 100  # 50 batches a second, within the budget
        traced.tracer.produced("orders", number % 2, batch(number), number, 0)
    traced.spans()
    traced.tracer.fetched("orders", 0, [bytes(batch(0))], 0)
    assert traced.spans() == []
    traced.tracer.fetched("orders", 1, [bytes(batch(1))], 0)
    assert len(traced.spans()) == 1


def test_a_busy_topic_is_sampled() -> None:
    traced = Traced()
    opened = TOPIC_BYTES_PER_S // BATCH_COST_MIN
    for number in range(opened + 7):
        traced.tracer.produced("busy", 0, batch(number), number, 0)
    assert len(traced.spans()) == 2 * opened
    assert [each.value for each in traced.tracer.readings() if isinstance(each, CounterReading)] == [7]
    traced.tracer.produced("quiet", 0, batch(), 0, 0)
    assert len(traced.spans()) == 2


def test_names_of_clients_are_cut() -> None:
    traced = Traced()
    traced.tracer.produced("orders", 0, batch(), 0, 0, "x" * 30_000)
    assert dict(traced.spans()[0].attributes)["messaging.client.id"] == "x" * NAME_SHOWN_CHARS
