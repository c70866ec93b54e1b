"""The queue of spans is bounded, and counts what it loses."""

from tidemill.tracing.span import FinishedSpan, SpanKind
from tidemill.tracing.span_queue import QUEUE_FULL, SpanQueue


def span(number: int) -> FinishedSpan:
    return FinishedSpan(str(number), SpanKind.INTERNAL, 1, number, 1, 0, 0)


def test_a_full_queue_drops_new_spans() -> None:
    halves: list[int] = []
    queue = SpanQueue(4)
    queue.on_half = lambda: halves.append(len(queue))
    for number in range(6):
        queue.add(span(number))
    assert (len(queue), queue.dropped[QUEUE_FULL], halves) == (4, 2, [2])
    assert [each.name for each in queue.take(3)] == ["0", "1", "2"]
    assert [each.name for each in queue.take(3)] == ["3"]
    assert queue.take(3) == []


def test_every_reason_is_reported_from_the_start() -> None:
    readings = [(each.name, each.labels) for each in SpanQueue().readings()]
    assert readings == [
        ("tidemill_spans_exported", ()),
        ("tidemill_spans_dropped", (("reason", "queue full"),)),
        ("tidemill_spans_dropped", (("reason", "export failed"),)),
    ]
