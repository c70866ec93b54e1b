"""Timelines in the console: the list, the future of one as a histogram that zooms by links, and its messages."""

import json
from typing import Any
from urllib.parse import urlencode

from tidemill.servers.http.api import timelines as api
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext
from tidemill.servers.http.console.charts import ChartBar
from tidemill.servers.http.console.page import Page, PageHandler
from tidemill.servers.http.console.quantities import number_text, time_text
from tidemill.servers.http.console.rendering import segment
from tidemill.servers.http.core.future_grid import (
    DAY_MS,
    HOUR_MS,
    SECOND_MS,
    FutureGrid,
    future_grid,
    shifted,
    zoomed_out,
)
from tidemill.wire.http.timelines import (
    FuturePageQuery,
    FutureQuery,
    FutureView,
    MessagesQuery,
    MessageView,
    TimelinePlace,
    TimelineQuery,
    TimelineStatus,
    TimelineView,
)

AHEAD = (("Next hour", HOUR_MS), ("Next day", DAY_MS), ("Next 30 days", 30 * DAY_MS))
SPAN_MS_MIN = 60 * SECOND_MS
BAR_NAMES = ("due now", "later")
ZOOM_WIDTH_MS = 10
"""A bar of this width or less opens the list of its messages."""
SETTING_NOTES = {
    "lease_ms": "How long a consumer holds a message, in ms.",
    "max_attempts": "Leases of a message before it becomes a dead letter. 0: no limit.",
    "dead_letter": "timeline:NAME or topic:NAME. Required with max_attempts.",
    "window_ms": "How often work is divided among consumers, in ms.",
    "body_bytes_max": "The largest body of a message.",
    "dealer": "racks or ranges: how work is divided among consumers.",
    "failing_percent": "Pushes stop while most consumers fail this part of their leases or more. 0: never.",
}


async def timelines_page(context: ApiContext, call: ApiCall[TimelineQuery, None]) -> Page:
    """`/timelines`."""
    brokers = sorted(context.broker.view.image.brokers)
    values = {
        "found": await api.list_timelines(context, call),
        "asked": call.query,
        "notes": SETTING_NOTES,
        "brokers": brokers,
        "broker_choices": [("", "the one that answers, or all that share it"), *((each, each) for each in brokers)],
    }
    return Page("Timelines", "timelines/list.html", values)


async def timeline_page(context: ApiContext, call: ApiCall[FuturePageQuery, None]) -> Page:
    """`/timelines/NAME`."""
    query = call.query
    place = ApiCall(call.request, call.client, TimelinePlace(broker=query.broker), None)
    timeline = await api.show_timeline(context, place)
    first_ms, last_ms = _whole(timeline)
    from_ms = first_ms if query.from_ms is None else query.from_ms
    to_ms = last_ms if query.to_ms is None else query.to_ms
    grid = future_grid(from_ms, to_ms)
    future = await _future(context, call, grid, query.status)
    available = future if query.status == "available" else await _future(context, call, grid, "available")
    links = FutureLinks(timeline, query)
    values = {
        **_shared(timeline, query.broker),
        "asked": query,
        "future": future,
        "grid": grid,
        "bars": links.bars(grid, future, available if query.status in {None, "available"} else None),
        "bar_names": BAR_NAMES,
        "ranges": links.ranges(grid, future.now_ms),
        "messages_link": links.messages(grid.start_ms, grid.end_ms),
        "totals": [(name.capitalize(), number_text(count)) for name, count in sorted(timeline.totals.items())],
        "is_zoomed": query.from_ms is not None or query.to_ms is not None,
    }
    return Page(timeline.timeline, "timelines/future.html", values)


async def _future(
    context: ApiContext, call: ApiCall[FuturePageQuery, None], grid: FutureGrid, status: TimelineStatus | None
) -> FutureView:
    asked = FutureQuery(
        broker=call.query.broker, from_ms=grid.start_ms, to_ms=grid.end_ms, bars=grid.bars, status=status
    )
    return await api.show_future(context, ApiCall(call.request, call.client, asked, None))


def _whole(timeline: TimelineView) -> tuple[int, int]:
    """From the first message, or from now, to the last."""
    now_ms = timeline.now_ms or 0
    first_ms = min(now_ms, now_ms if timeline.first_due_ms is None else timeline.first_due_ms)
    last_ms = now_ms if timeline.last_due_ms is None else timeline.last_due_ms
    return first_ms, max(last_ms + 1, first_ms + SPAN_MS_MIN)


class FutureLinks:
    """The links of the histogram of one timeline."""

    def __init__(self, timeline: TimelineView, query: FuturePageQuery) -> None:
        self._path = f"/timelines/{segment(timeline.timeline)}"
        self._kept = {
            name: value for name, value in (("broker", query.broker), ("status", query.status)) if value is not None
        }

    def future(self, from_ms: int, to_ms: int) -> str:
        """This page for a range."""
        return f"{self._path}?{urlencode({**self._kept, 'from_ms': from_ms, 'to_ms': to_ms})}"

    def messages(self, from_ms: int, to_ms: int) -> str:
        """The messages of a range."""
        return f"{self._path}/messages?{urlencode({**self._kept, 'from_ms': from_ms, 'to_ms': to_ms})}"

    def bars(self, grid: FutureGrid, future: FutureView, available: FutureView | None) -> list[ChartBar]:
        """The bars, each with what is due now apart. A bar opens its own range, or a list of its messages."""
        now = available.counts if available is not None else [0] * grid.bars
        opened = self.messages if grid.width_ms <= ZOOM_WIDTH_MS else self.future
        return [
            ChartBar(
                _bar_time(start_ms, grid),
                (min(due, count), max(0, count - due)),
                opened(start_ms, end_ms) if count else "",
            )
            for (start_ms, end_ms), count, due in zip(grid.edges(), future.counts, now, strict=True)
        ]

    def ranges(self, grid: FutureGrid, now_ms: int) -> list[tuple[str, str]]:
        """Other ranges, with their names."""
        found = [("Zoom out", self.future(*zoomed_out(grid)))]
        for name, direction in (("Earlier", -1), ("Later", 1)):
            moved = shifted(grid, direction)
            if moved is not None:
                found.append((name, self.future(*moved)))
        start_ms = now_ms // SECOND_MS * SECOND_MS
        found += [(name, self.future(start_ms, start_ms + length_ms)) for name, length_ms in AHEAD]
        whole = f"?{urlencode(self._kept)}" if self._kept else ""
        return [*found, ("Everything", self._path + whole)]


def _bar_time(start_ms: int, grid: FutureGrid) -> str:
    """The start of a bar, as precise as bars of this width need it."""
    text = time_text(start_ms)
    if grid.width_ms >= DAY_MS:
        return text[:10]
    if grid.width_ms < SECOND_MS:
        return f"{text[11:]}.{start_ms % SECOND_MS:03d}"
    return text[5:16] if grid.end_ms - grid.start_ms > DAY_MS else text[11:19]


async def messages_page(context: ApiContext, call: ApiCall[MessagesQuery, None]) -> Page:
    """`/timelines/NAME/messages`."""
    query = call.query
    place = ApiCall(call.request, call.client, TimelinePlace(broker=query.broker), None)
    timeline = await api.show_timeline(context, place)
    values = {
        **_shared(timeline, query.broker),
        "asked": query,
        "found": await api.list_messages(context, call),
        "to_retry": {
            "search": query.search,
            "from_ms": query.from_ms,
            "to_ms": query.to_ms,
            "broker": query.broker,
        },
    }
    return Page(timeline.timeline, "timelines/messages.html", values)


async def message_page(context: ApiContext, call: ApiCall[TimelinePlace, None]) -> Page:
    """`/timelines/NAME/messages/ID`."""
    timeline = await api.show_timeline(context, call)
    message = await api.show_message(context, call)
    text, is_json = _readable(message)
    values = {**_shared(timeline, call.query.broker), "message": message, "text": text, "is_json": is_json}
    return Page(message.id, "timelines/message.html", values)


def _readable(message: MessageView) -> tuple[str | None, bool]:
    """The body for people: JSON with a line for each value, or the text as it is."""
    if message.body is None or message.is_cut:
        return message.body, False
    try:
        found = json.loads(message.body)
        if not isinstance(found, dict | list):
            return message.body, False
        return json.dumps(found, indent=2, ensure_ascii=False), True
    except (ValueError, RecursionError):
        return message.body, False


async def settings_page(context: ApiContext, call: ApiCall[TimelinePlace, None]) -> Page:
    """`/timelines/NAME/settings`."""
    timeline = await api.show_timeline(context, call)
    return Page(
        timeline.timeline, "timelines/settings.html", {**_shared(timeline, call.query.broker), "notes": SETTING_NOTES}
    )


def _shared(timeline: TimelineView, broker: int | None) -> dict[str, Any]:
    """What all pages of a timeline show. `suffix` names its broker in links, where it is one of several."""
    suffix = "" if timeline.broker is None or len(timeline.brokers) < 2 else f"?broker={timeline.broker}"
    return {
        "timeline": timeline,
        "suffix": suffix,
        "place": {} if broker is None else {"broker": broker},
        "base": f"/timelines/{segment(timeline.timeline)}",
        "api": f"/api/v1/timelines/{segment(timeline.timeline)}",
    }


PAGES: dict[str, PageHandler] = {
    "GET /timelines": timelines_page,
    "GET /timelines/{name}": timeline_page,
    "GET /timelines/{name}/messages": messages_page,
    "GET /timelines/{name}/messages/{id}": message_page,
    "GET /timelines/{name}/settings": settings_page,
}
