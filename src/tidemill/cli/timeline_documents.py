"""The documents of timelines, as the JSON API has them, from what a client over gRPC can know."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from tidemill.cli.timeline_options import now_ms
from tidemill.client.timelines.message import due_ms, every_ms

if TYPE_CHECKING:
    from tidemill.client.timelines import Bar, RecurrenceRule, Stored, TimelineDescription
    from tidemill.wire.http.timelines import (
        DeadLetterTarget,
        FutureView,
        MessagePage,
        MessageView,
        RecurrenceView,
        TimelinePage,
        TimelineStatus,
        TimelineView,
    )

WHOLE_BYTES = 2**31


def timeline_page(found: "Sequence[TimelineDescription]") -> "TimelinePage":
    """The timelines of the broker that was asked. Their messages are not counted."""
    from tidemill.wire.http.timelines import TimelinePage, TimelineRow

    rows = [TimelineRow(**_row(each)) for each in sorted(found, key=lambda each: each.name)]
    return TimelinePage(timelines=rows, total=len(rows), unreachable_brokers=[], is_available=True)


def timeline_view(described: "TimelineDescription", counts: Mapping[str, int]) -> "TimelineView":
    """One timeline with its settings and its messages by status."""
    from tidemill.wire.http.timelines import TimelineView

    return TimelineView(
        **_row(described),
        waiting=counts["waiting"],
        available=counts["available"],
        leased=counts["leased"],
        settings=dict(described.settings),
        delivery=described.delivery,
        delivery_reasons=(described.delivery_reason,) if described.delivery_reason else (),
        dead_letters=_dead_letters(described.settings.get("dead_letter", "")),
    )


def message_page(timeline: str, found: "Sequence[Stored]", limit: int) -> "MessagePage":
    """The first messages of a timeline, whole."""
    from tidemill.wire.http.timelines import MessagePage

    last = found[-1] if len(found) == limit else None
    return MessagePage(
        messages=[_message(timeline, each) for each in found],
        next=None if last is None else f"{due_ms(last.lease_ends or last.due)}.{last.seq}",
        scanned=len(found),
        now_ms=now_ms(),
    )


def future_view(bars: "Sequence[Bar]", to_ms: int) -> "FutureView":
    """The messages of a time by due time. Every message is counted."""
    from tidemill.wire.http.timelines import FutureView

    from_ms, total = due_ms(bars[0].start), sum(bar.count for bar in bars)
    return FutureView(
        from_ms=from_ms,
        to_ms=to_ms,
        width_ms=-(-(to_ms - from_ms) // len(bars)),
        counts=[bar.count for bar in bars],
        bar_max=total + 1,
        total=total,
        now_ms=now_ms(),
    )


def _row(described: "TimelineDescription") -> dict[str, Any]:
    from tidemill.timelines.core.timeline import SCHEDULE, WAITING_PREFIX, resource_of

    name = described.name
    return {
        "timeline": name,
        "state": described.state,
        "topic": resource_of(name) if name.startswith((SCHEDULE, WAITING_PREFIX)) else None,
        "consumers": described.consumers,
        "lease_ms": int(described.settings["lease_ms"]),
    }


def _dead_letters(setting: str) -> "DeadLetterTarget | None":
    from tidemill.wire.http.timelines import DeadLetterTarget

    kind, _, target = setting.partition(":")
    if not target:
        return None
    return DeadLetterTarget(timeline=target) if kind == "timeline" else DeadLetterTarget(topic=target)


def _message(timeline: str, stored: "Stored") -> "MessageView":
    from tidemill.servers.http.core.message_text import shown_bytes
    from tidemill.wire.http.timelines import MessageView

    key, body = shown_bytes(stored.key, WHOLE_BYTES), shown_bytes(stored.body, WHOLE_BYTES)
    scheduled_ms = due_ms(stored.due)
    lease_ends_ms = None if stored.lease_ends is None else due_ms(stored.lease_ends)
    return MessageView(
        id=stored.id,
        status=cast("TimelineStatus", stored.status),
        due_ms=scheduled_ms if lease_ends_ms is None else lease_ends_ms,
        scheduled_ms=scheduled_ms,
        attempts=stored.attempts,
        bytes=len(stored.body),
        group=stored.group,
        key=key.text,
        key_base64=key.base64,
        holder=stored.holder or None,
        timeline=timeline,
        body=body.text,
        body_base64=body.base64,
        lease_ends_ms=lease_ends_ms,
        recurrence=None if stored.recurrence is None else _recurrence(stored.recurrence),
        now_ms=now_ms(),
    )


def _recurrence(rule: "RecurrenceRule") -> "RecurrenceView":
    from tidemill.wire.http.timelines import RecurrenceView

    return RecurrenceView(
        cron=rule.cron,
        zone=rule.zone,
        every_ms=None if rule.every is None else every_ms(rule.every),
        missed=rule.missed,
        until_ms=None if rule.until is None else due_ms(rule.until),
        left=rule.count,
    )
