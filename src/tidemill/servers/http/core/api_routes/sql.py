"""The routes of SQL."""

from tidemill.security.core.resources import Operation
from tidemill.servers.http.core.route_access import GROUP, PAGE, TOPIC, LoginNeed, RouteAccess, RouteShapes, optional
from tidemill.wire.http.sql import ChartRequest, QueryRequest, QueryResult, SqlPageQuery, SqlTables

RESULT_TYPES = {"jsonl": "application/x-ndjson", "csv": "text/csv", "parquet": "application/vnd.apache.parquet"}
"""The content types of results that are no document."""
_READ = (
    optional(Operation.READ, TOPIC, "for messages, topic_rates and timers"),
    optional(Operation.DESCRIBE, TOPIC, "for partitions, and topics in tables of groups"),
    optional(
        Operation.DESCRIBE, GROUP, "for consumer_offsets, consumer_lag, group_members, group_activity and share_groups"
    ),
)

_ANY_NOTE = "rows that the client has no right to are left out; one of these rights is needed to run a query"

ROUTES: tuple[RouteAccess, ...] = (
    RouteAccess(
        "GET",
        "/sql",
        LoginNeed.LOGIN,
        _READ,
        shapes=RouteShapes("Write a query.", query=SqlPageQuery, media_type=PAGE),
    ),
    RouteAccess(
        "POST",
        "/sql/chart",
        LoginNeed.LOGIN,
        _READ,
        shapes=RouteShapes("Draw two columns of a result.", body=ChartRequest, media_type=PAGE),
    ),
    RouteAccess(
        "GET",
        "/api/v1/sql/tables",
        LoginNeed.LOGIN,
        _READ,
        shapes=RouteShapes("List the tables that queries can read, with their columns.", SqlTables),
    ),
    RouteAccess(
        "POST",
        "/api/v1/sql",
        LoginNeed.LOGIN,
        _READ,
        _ANY_NOTE,
        shapes=RouteShapes("Run a query.", QueryResult, body=QueryRequest, more_types=tuple(RESULT_TYPES.values())),
    ),
)
