"""The routes of records."""

from tidemill.security.core.resources import Operation
from tidemill.servers.http.core.route_access import PAGE, TOPIC, LoginNeed, RouteAccess, RouteShapes, optional
from tidemill.wire.http.records import (
    NewRecordInput,
    PayloadQuery,
    RecordExportQuery,
    RecordFormatQuery,
    RecordPage,
    RecordPageQuery,
    RecordQuery,
    RecordRow,
    RecordTailQuery,
    WrittenRecord,
)

_READ = optional(Operation.READ, TOPIC, "and DESCRIBE; the Kafka server checks it")
_WRITE = optional(Operation.WRITE, TOPIC, "and DESCRIBE; the Kafka server checks it")
_PAGE = "/topics/{topic}/records"
_RECORDS = "/api/v1/topics/{topic}/records"
_RECORD = _RECORDS + "/{partition}/{offset}"


def _route(method: str, path: str, shapes: RouteShapes) -> RouteAccess:
    changes = method != "GET"
    right = _WRITE if changes else _READ
    return RouteAccess(method, path, LoginNeed.LOGIN, (right,), shapes=shapes, changes=changes)


ROUTES: tuple[RouteAccess, ...] = (
    _route("GET", _PAGE, RouteShapes("Show records of a topic.", query=RecordPageQuery, media_type=PAGE)),
    _route(
        "GET",
        _PAGE + "/{partition}/{offset}",
        RouteShapes("Show one record.", query=RecordFormatQuery, media_type=PAGE),
    ),
    _route("GET", _RECORDS, RouteShapes("List records of a topic.", RecordPage, RecordQuery)),
    _route("POST", _RECORDS, RouteShapes("Write one record.", WrittenRecord, body=NewRecordInput)),
    _route(
        "GET",
        _RECORDS + "/events",
        RouteShapes("Send new records as they come.", query=RecordTailQuery, media_type="text/event-stream"),
    ),
    _route(
        "GET",
        _RECORDS + ".jsonl",
        RouteShapes("Download records as JSON lines.", query=RecordExportQuery, media_type="application/x-ndjson"),
    ),
    _route("GET", _RECORD, RouteShapes("Describe one record.", RecordRow, RecordFormatQuery)),
    _route(
        "GET",
        _RECORD + "/payload",
        RouteShapes("Download a key, a value or a header.", query=PayloadQuery, media_type="application/octet-stream"),
    ),
)
