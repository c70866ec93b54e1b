"""Messages of this broker's timelines, for the pages of all brokers: a page of a list, one message, and its body.

Listing needs the right READ, as over gRPC. A search compares ids and keys of a bounded number of messages for each
request; the client continues from where it stopped. It reads the store in short steps, because the prefetch of
deliveries uses the same reader.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tidemill.broker.broker import BrokerNode
from tidemill.model.errors import CorruptMessage
from tidemill.model.timeline_errors import UnknownMessage
from tidemill.scheduling.core.batch_split import read_waiting
from tidemill.security.client_rights import ClientRights
from tidemill.security.core.resources import Operation
from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.servers.http.api.broker_parts import PartKind
from tidemill.servers.http.api.timeline_parts import END_MS, dispatcher_of, sources_of
from tidemill.servers.http.core.message_text import ShownBytes, shown_bytes
from tidemill.timelines.core.lease import DEAD_LETTER_NAME_CHARS_MAX, dead_letter_origin
from tidemill.timelines.core.message import MessageStatus, Selection, TimedMessage, TimelinePosition, status_of
from tidemill.timelines.core.recurrence import recurrence_from
from tidemill.timelines.core.timeline import SCHEDULE, WAITING_PREFIX, resource_of
from tidemill.timelines.dispatcher import Dispatcher
from tidemill.wire.http.timeline_parts import MessageAsked, MessageBody, MessagesAsked
from tidemill.wire.http.timelines import MessageHeader, MessagePage, MessageRow, MessageView, RecurrenceView

SCANNED_MAX = 20_000
STEP_ROWS = 1_000
KEY_LISTED_BYTES = 256
BODY_LOADED_BYTES = 1024 * 1024
"""A longer body is not read from the store to be shown."""
BODY_SHOWN_BYTES = 64 * 1024
HEADER_SHOWN_BYTES = 1024
DOWNLOAD_BYTES_MAX = 8 * 1024 * 1024

Matches = Callable[[TimedMessage], bool]


class FoundMessages(NamedTuple):
    """The messages of one page, how many were compared, and where the next page begins; None after the last."""

    messages: list[TimedMessage]
    scanned: int
    next: TimelinePosition | None


def selection_of(status: str | None, from_ms: int | None, to_ms: int | None) -> Selection:
    """The messages with this state, due between these times."""
    start_ms, end_ms = from_ms or 0, END_MS if to_ms is None else to_ms
    return Selection(start_ms, max(start_ms, end_ms), None if status is None else MessageStatus(status))


def position_of(cursor: str | None) -> TimelinePosition | None:
    """A position that was a client's `next`."""
    if cursor is None:
        return None
    due_ms, _, seq = cursor.partition(".")
    return TimelinePosition(int(due_ms), int(seq))


def cursor_of(position: TimelinePosition | None) -> str | None:
    """A position for a client."""
    return None if position is None else f"{position.due_ms}.{position.seq}"


async def find_messages(
    dispatcher: Dispatcher,
    name: str,
    selection: Selection,
    search: str,
    *,
    rows: int,
    after: TimelinePosition | None,
    scanned_max: int = SCANNED_MAX,
) -> FoundMessages:
    """The first messages after a position with `search` in their id or key. The whole of an id is found at once."""
    if search and after is None:
        named = await dispatcher.messages(name, selection._replace(ids=(search,)), 1, bodies=False)
        if named:
            return FoundMessages(named, 1, None)
    matches = _matching(search)
    found: list[TimedMessage] = []
    scanned = 0
    while scanned < scanned_max:
        step = min(STEP_ROWS, scanned_max - scanned if search else rows + 1 - len(found))
        page = await dispatcher.messages(name, selection, step, after=after, bodies=False)
        for message in page:
            if matches(message):
                if len(found) == rows:
                    return FoundMessages(found, scanned, after)
                found.append(message)
            scanned += 1
            after = TimelinePosition(message.due_ms, message.seq)
        if len(page) < step:
            return FoundMessages(found, scanned, None)
    return FoundMessages(found, scanned, after)


def _matching(search: str) -> Matches:
    if not search:
        return lambda _: True
    wanted = search.encode()
    return lambda message: search in message.id or (message.key is not None and wanted in message.key)


class Origins:
    """Where dead letters of a timeline can return to."""

    def __init__(self, dispatcher: Dispatcher, timeline: str) -> None:
        self._sources = {each[:DEAD_LETTER_NAME_CHARS_MAX]: each for each in sources_of(dispatcher, timeline)}

    def of(self, message: TimedMessage) -> str | None:
        """The timeline of a dead letter; None for other messages."""
        origin = dead_letter_origin(message.id)
        return None if origin is None or message.version == 1 else self._sources.get(origin.timeline)


async def _messages_here(broker: BrokerNode, rights: ClientRights, asked: MessagesAsked) -> MessagePage:
    dispatcher, name, query = dispatcher_of(broker), asked.timeline, asked.query
    rights.check_topic(Operation.READ, resource_of(name))
    await dispatcher.find(name)
    selection = selection_of(query.status, query.from_ms, query.to_ms)
    found = await find_messages(
        dispatcher, name, selection, query.search, rows=query.rows, after=position_of(query.after)
    )
    now_ms, origins = dispatcher.clock.now_ms(), Origins(dispatcher, name)
    return MessagePage(
        messages=[MessageRow(**_row(each, origins, now_ms, KEY_LISTED_BYTES)) for each in found.messages],
        next=cursor_of(found.next),
        scanned=found.scanned,
        now_ms=now_ms,
    )


def _row(message: TimedMessage, origins: Origins, now_ms: int, key_bytes: int) -> dict[str, Any]:
    key = shown_bytes(message.key, key_bytes)
    status = status_of(message.due_ms, message.holder, now_ms)
    is_leased = status is MessageStatus.LEASED
    return {
        "id": message.id,
        "status": status.value,
        "due_ms": message.due_ms,
        "scheduled_ms": message.scheduled_ms,
        "attempts": message.attempts,
        "bytes": message.size,
        "group": message.group,
        "key": None if key.text is None else key.text + ("…" if key.is_cut else ""),
        "key_base64": key.base64,
        "holder": message.holder if is_leased else None,
        "origin": origins.of(message),
        "recurrence": _rule_of(message),
    }


def _rule_of(message: TimedMessage) -> RecurrenceView | None:
    if not message.recurrence:
        return None
    rule = recurrence_from(message.recurrence)
    return RecurrenceView(
        cron=rule.cron or None,
        zone=rule.zone if rule.cron else None,
        every_ms=rule.every_ms or None,
        missed=rule.missed.value,
        until_ms=rule.until_ms or None,
        left=rule.left or None,
    )


async def _message_here(broker: BrokerNode, rights: ClientRights, asked: MessageAsked) -> MessageView:
    dispatcher, name = dispatcher_of(broker), asked.timeline
    rights.check_topic(Operation.READ, resource_of(name))
    message = await _named(dispatcher, name, asked.id, BODY_LOADED_BYTES)
    now_ms = dispatcher.clock.now_ms()
    row = _row(message, Origins(dispatcher, name), now_ms, len(message.key or b""))
    content = _scheduled(name, message) if name.startswith((SCHEDULE, WAITING_PREFIX)) else _content(message.body)
    return MessageView(
        **{**row, **content},
        timeline=name,
        lease_ends_ms=message.due_ms if row["status"] == MessageStatus.LEASED.value else None,
        now_ms=now_ms,
    )


async def _named(dispatcher: Dispatcher, name: str, message_id: str, bytes_max: int) -> TimedMessage:
    """The message, with its body if that is not too long."""
    await dispatcher.find(name)
    selection = Selection(ids=(message_id,))
    found = await dispatcher.messages(name, selection, 1, bodies=False)
    if found and found[0].size <= bytes_max:
        found = await dispatcher.messages(name, selection, 1, bodies=True)
    if not found:
        raise UnknownMessage(
            f"there is no message {message_id!r} on timeline {name!r}; it was completed or cancelled, or never existed"
        )
    return found[0]


def _content(body: bytes | None) -> dict[str, Any]:
    shown = ShownBytes(None, None, is_cut=True) if body is None else shown_bytes(body, BODY_SHOWN_BYTES)
    return {"body": shown.text, "body_base64": shown.base64, "is_cut": shown.is_cut}


def _scheduled(name: str, message: TimedMessage) -> dict[str, Any]:
    """The content of a scheduled record. Its body on the timeline is a partition and a batch of one record."""
    topic = resource_of(name)
    if message.body is None:
        return {**_content(None), "topic": topic}
    try:
        partition, record, _ = read_waiting(message.body)
    except (CorruptMessage, StopIteration):
        return {**_content(message.body), "topic": topic}
    key = shown_bytes(record.key, BODY_SHOWN_BYTES)
    return {
        **_content(record.value if record.value is not None else b""),
        "topic": topic,
        "partition": partition,
        "key": key.text,
        "key_base64": key.base64,
        "headers": tuple(_header(each, value) for each, value in record.headers),
    }


def _header(name: str, value: bytes | None) -> MessageHeader:
    shown = shown_bytes(value, HEADER_SHOWN_BYTES)
    return MessageHeader(name=name, value=shown.text, value_base64=shown.base64)


async def _body_here(broker: BrokerNode, rights: ClientRights, asked: MessageAsked) -> MessageBody:
    dispatcher, name = dispatcher_of(broker), asked.timeline
    rights.check_topic(Operation.READ, resource_of(name))
    message = await _named(dispatcher, name, asked.id, DOWNLOAD_BYTES_MAX)
    if message.body is None:
        raise ApiProblem(
            413,
            f"the body has {message.size:,} bytes, and {DOWNLOAD_BYTES_MAX:,} can be downloaded here; "
            f"use: tidemill timeline list {name} --json",
        )
    return MessageBody(body=message.body)


TIMELINE_MESSAGES = PartKind("timeline-messages", MessagesAsked, MessagePage, _messages_here)
TIMELINE_MESSAGE = PartKind("timeline-message", MessageAsked, MessageView, _message_here)
TIMELINE_BODY = PartKind("timeline-body", MessageAsked, MessageBody, _body_here)
PARTS: Sequence[PartKind[Any, Any]] = (TIMELINE_MESSAGES, TIMELINE_MESSAGE, TIMELINE_BODY)
