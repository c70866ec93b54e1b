"""Records in the console: pages of a topic's records with filters, a live view, and one record with all its parts."""

from typing import Any
from urllib.parse import urlencode

import msgspec

from tidemill.model.errors import TidemillError
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext
from tidemill.servers.http.api.api_problem import ApiProblem, status_of_error
from tidemill.servers.http.api.record_reader import TAIL_ROWS
from tidemill.servers.http.api.records import TAIL_S, list_records, shown_record
from tidemill.servers.http.console.page import Page, PageHandler
from tidemill.servers.http.console.quantities import time_input
from tidemill.servers.http.console.topic_frame import TopicFrame, topic_frame
from tidemill.servers.http.core.json_folding import folded_json
from tidemill.servers.http.core.record_positions import MERGED_PARTITIONS_MAX, InvalidPosition, decode_time
from tidemill.wire.http.records import (
    HEADERS_PRODUCED_MAX,
    PAYLOAD_CHARS_MAX,
    PayloadView,
    RecordFormatQuery,
    RecordPage,
    RecordPageQuery,
    RecordQuery,
)

FORMATS = ("auto", "json", "text", "hex", "base64", "avro", "protobuf")
RECORD_CHARS = 64 * 1024
"""The most characters of a key or value on the page of a record."""
HEADERS_SHOWN = 100
PREVIEW_CHARS = 300
"""The most characters of a key or value in a row."""
FOLDED_FORMATS = ("json", "avro", "protobuf")
ROWS = (25, 50, 100, 200)
FILTERS = ("key", "value", "header", "where")
EXAMPLES = (
    ("Condition", "where", "$.order.total > 100", "a number in a JSON value"),
    ("Condition", "where", "$.status = 'failed' and $key.region = 'eu'", "a text in the value and one in a JSON key"),
    ("Condition", "where", "$.items[*].sku = 'A-7' or $.items[0].count >= 3", "any or the first element of a list"),
    ("Condition", "where", "$headers.trace contains 'ab'", "a header; use matches for a regular expression"),
    ("Condition", "where", "not $.error and $.note != null", "a field that is missing, and one that is not null"),
    ("Condition", "where", "$partition = 0 and $offset < 500", "the place; $timestamp is in milliseconds"),
    ("Condition", "where", "$['first name'] = 'Ada'", "a name with other characters"),
    ("Key", "key", "customer-7", "a part of the key, in upper and lower case as written"),
    ("Header", "header", "trace=ab", "a part of NAME=VALUE"),
)
"""Fields of the filter with what they accept; the help shows them."""


async def records_page(context: ApiContext, call: ApiCall[RecordPageQuery, None]) -> Page:
    """`/topics/NAME/records`."""
    frame, query = topic_frame(context, call), call.query
    is_single = frame.partitions > MERGED_PARTITIONS_MAX
    asked = _selected(query, 0 if is_single else None)
    found, problem, status = None, "", 200
    if frame.may_read:
        try:
            found = await list_records(context, ApiCall(call.request, call.client, asked, None))
        except ApiProblem as error:
            problem, status = str(error), error.status
        except TidemillError as error:
            problem, status = str(error), status_of_error(error)
    values = {
        **_shared(context, frame),
        "asked": asked,
        "last": query.last or "",
        "time": _shown_time(asked.time),
        "found": found,
        "problem": problem,
        "is_single": is_single,
        "is_live": query.live and frame.may_read and not problem,
        "is_filtered": any(getattr(asked, name) for name in FILTERS) or asked.partition is not None,
        "has_start": bool(asked.position or asked.time or asked.offset is not None),
        "selection": _fields(asked, "partition", *FILTERS, "match", "uncommitted"),
        "download_start": _fields(asked, "offset", "time") if asked.order == "oldest" else {},
        "live_path": f"{frame.api}/records/events?{urlencode(_followed(asked))}",
        "live_position": _live_position(asked, found),
        "shown_per_s": int(TAIL_ROWS / TAIL_S),
        "preview_chars": PREVIEW_CHARS,
        "rows": ROWS,
        "examples": EXAMPLES,
    }
    return Page(f"Records of {frame.name}", "records/list.html", values, status)


def _selected(query: RecordPageQuery, partition: int | None) -> RecordQuery:
    """The records that the page asks for. `partition` is used where the page names none."""
    fields = {name: value for name, value in msgspec.structs.asdict(query).items() if value not in {"", None}}
    fields.pop("live")
    last = fields.pop("last", None)
    if last is not None:
        fields |= {"order": "oldest", "offset": -last, "time": ""}
    return RecordQuery(**{"partition": partition, **fields})


def _fields(asked: RecordQuery, *names: str) -> dict[str, Any]:
    """The fields of a query that are not as they are by default, as a URL has them."""
    given = {name: getattr(asked, name) for name in names}
    return {
        name: "true" if value is True else value
        for name, value in given.items()
        if value is not None and value is not False and value != "" and (name != "match" or value != "substring")
    }


def _followed(asked: RecordQuery) -> dict[str, Any]:
    formats = {name: getattr(asked, name) for name in ("key_format", "value_format") if getattr(asked, name) != "auto"}
    return {**_fields(asked, "partition", *FILTERS, "match", "uncommitted"), **formats}


def _live_position(asked: RecordQuery, found: RecordPage | None) -> str:
    """Where a live view continues the page: at the end that the page has seen, if it shows the newest records."""
    has_start = asked.position or asked.time or asked.offset is not None
    return found.previous if found is not None and asked.order == "newest" and not has_start else ""


def _shown_time(text: str) -> str:
    """A time as a field for times has it; empty if it is none."""
    try:
        return time_input(decode_time(text)) if text.strip() else ""
    except InvalidPosition:
        return ""


async def record_page(context: ApiContext, call: ApiCall[RecordFormatQuery, None]) -> Page:
    """`/topics/NAME/records/PARTITION/OFFSET`."""
    frame = topic_frame(context, call)
    record = await shown_record(context, call, RECORD_CHARS)
    values = {
        **_shared(context, frame),
        "record": record,
        "asked": call.query,
        "key_parts": _folded(record.key_view),
        "value_parts": _folded(record.value_view),
        "headers_shown": HEADERS_SHOWN,
    }
    return Page(f"{frame.name}-{record.partition} @ {record.offset}", "records/record.html", values)


def _folded(view: PayloadView) -> Any:
    return folded_json(view.text) if view.format in FOLDED_FORMATS else None


def _shared(context: ApiContext, frame: TopicFrame) -> dict[str, Any]:
    topic = context.broker.view.topic(frame.name)
    return {
        "frame": frame,
        "formats": FORMATS,
        "merged_max": MERGED_PARTITIONS_MAX,
        "may_produce": frame.may_write and not frame.is_internal,
        "is_scheduled": topic is not None and topic.settings.tidemill_schedule_enable,
        "payload_chars_max": PAYLOAD_CHARS_MAX,
        "headers_max": HEADERS_PRODUCED_MAX,
    }


PAGES: dict[str, PageHandler] = {
    "GET /topics/{topic}/records": records_page,
    "GET /topics/{topic}/records/{partition}/{offset}": record_page,
}
