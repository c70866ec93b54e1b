"""Spans of timed messages."""

from itertools import count

import pytest

from tidemill.tracing import timeline_tracer
from tidemill.tracing.core.sampling import Sampler
from tidemill.tracing.core.trace_context import TraceContext
from tidemill.tracing.span import FinishedSpan
from tidemill.tracing.span_queue import SpanQueue
from tidemill.tracing.timeline_tracer import TimelineTracer

CONTEXT = TraceContext(0xABC, 7, is_sampled=True)
MS = 1_000_000


class TracedTimeline:
    """A tracer with a clock that the test sets, and its spans."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.queue = SpanQueue(10_000)
        ids = count(1)
        self.tracer = TimelineTracer(self.queue, Sampler(), lambda: self.now_ns, lambda: next(ids))

    def at(self, ms: int) -> TimelineTracer:
        self.now_ns = ms * MS
        return self.tracer

    def spans(self) -> list[FinishedSpan]:
        return self.queue.take(10_000)


@pytest.fixture
def timeline() -> TracedTimeline:
    return TracedTimeline()


def test_lateness_and_work_are_lengths_of_spans(timeline: TracedTimeline) -> None:
    timeline.at(10).scheduled("t", CONTEXT, ["a", "b"], 5 * MS)
    timeline.at(120).leased("t", "a", 100, seq=1, token=9, attempts=1, consumer="w")
    timeline.at(150).settled("t", "complete", 1, 9, is_last=True)
    scheduled, leased, completed = timeline.spans()
    assert (scheduled.parent_id, leased.parent_id, completed.parent_id) == (7, scheduled.span_id, leased.span_id)
    assert (scheduled.start_ns, scheduled.end_ns) == (5 * MS, 10 * MS)
    assert (leased.start_ns, leased.end_ns) == (100 * MS, 120 * MS)
    assert (completed.start_ns, completed.end_ns) == (120 * MS, 150 * MS)
    timeline.at(160).leased("t", "a", 100, seq=1, token=10, attempts=2, consumer="w")
    assert timeline.spans() == []  # it was completed


def test_a_message_of_the_past_or_early_has_no_negative_length(timeline: TracedTimeline) -> None:
    timeline.at(10).scheduled("t", CONTEXT, ["past", "early"], 0)
    timeline.at(12).leased("t", "past", 1, seq=1, token=1, attempts=1, consumer="w")
    timeline.at(13).leased("t", "early", 15, seq=2, token=1, attempts=1, consumer="w")
    _, past, early = timeline.spans()
    assert (past.start_ns, past.end_ns) == (10 * MS, 12 * MS)
    assert (early.start_ns, early.end_ns) == (13 * MS, 13 * MS)


def test_a_release_keeps_the_trace(timeline: TracedTimeline) -> None:
    timeline.at(1).scheduled("t", CONTEXT, ["a"], 0)
    timeline.at(2).leased("t", "a", 1, seq=1, token=1, attempts=1, consumer="w")
    timeline.at(3).settled("t", "release", 1, 1, is_last=False)
    timeline.at(4).leased("t", "a", 4, seq=1, token=2, attempts=2, consumer="w")
    timeline.at(5).settled("t", "complete", 1, 2, is_last=True, error="StaleLease")
    timeline.at(6).leased("t", "a", 4, seq=1, token=3, attempts=3, consumer="w")
    names = [(span.name, span.error) for span in timeline.spans()]
    assert names == [
        ("schedule t", ""),
        ("lease t", ""),
        ("release t", ""),
        ("lease t", ""),
        ("complete t", "StaleLease"),
        ("lease t", ""),
    ]


def test_a_trace_that_is_not_sampled_is_not_remembered(timeline: TracedTimeline) -> None:
    timeline.tracer.scheduled("t", None, ["a"], 0)
    timeline.tracer.scheduled("t", CONTEXT._replace(is_sampled=False), ["a"], 0)
    timeline.tracer.scheduled("t", CONTEXT, [], 0)
    timeline.tracer.leased("t", "a", 1, seq=1, token=1, attempts=1, consumer="w")
    timeline.tracer.settled("t", "complete", 1, 1, is_last=True)
    assert timeline.spans() == []


def test_the_same_id_in_another_timeline_is_another_message(timeline: TracedTimeline) -> None:
    timeline.tracer.scheduled("t", CONTEXT, ["a"], 0)
    timeline.tracer.leased("u", "a", 1, seq=1, token=1, attempts=1, consumer="w")
    assert [span.name for span in timeline.spans()] == ["schedule t"]


def test_the_oldest_messages_are_forgotten(timeline: TracedTimeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_tracer, "MESSAGES_REMEMBERED_MAX", 3)
    timeline.tracer.scheduled("t", CONTEXT, ["a", "b", "c", "d"], 0)
    timeline.spans()
    for seq, name in enumerate("abcd"):
        timeline.tracer.leased("t", name, 1, seq=seq, token=1, attempts=1, consumer="w")
    assert len(timeline.spans()) == 3
