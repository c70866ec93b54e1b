"""The routes of the log."""

from tidemill.security.core.resources import Operation
from tidemill.servers.http.core.route_access import CLUSTER, PAGE, LoginNeed, RouteAccess, RouteRight, RouteShapes
from tidemill.wire.http.logs import LogPage, LogQuery

_DESCRIBE = RouteRight(Operation.DESCRIBE, CLUSTER)

ROUTES: tuple[RouteAccess, ...] = (
    RouteAccess(
        "GET",
        "/logs",
        LoginNeed.LOGIN,
        (_DESCRIBE,),
        shapes=RouteShapes("Show recent warnings and errors.", query=LogQuery, media_type=PAGE),
    ),
    RouteAccess(
        "GET",
        "/api/v1/logs",
        LoginNeed.LOGIN,
        (_DESCRIBE,),
        shapes=RouteShapes("List recent warnings and errors of the brokers.", LogPage, LogQuery),
    ),
)
