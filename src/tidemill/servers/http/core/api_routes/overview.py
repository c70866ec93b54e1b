"""The routes of the overview."""

from tidemill.security.core.resources import Operation
from tidemill.servers.http.core.route_access import (
    CLUSTER,
    PAGE,
    TOPIC,
    LoginNeed,
    RouteAccess,
    RouteRight,
    RouteShapes,
    optional,
)
from tidemill.wire.http.overview import ClusterOverview, History, HistoryQuery

_WHOLE_CLUSTER = RouteRight(Operation.DESCRIBE, CLUSTER)

ROUTES: tuple[RouteAccess, ...] = (
    RouteAccess(
        "GET",
        "/",
        LoginNeed.LOGIN,
        (
            optional(Operation.DESCRIBE, CLUSTER, "for brokers, numbers and what needs attention"),
            optional(Operation.DESCRIBE, TOPIC, "leaves out the other topics"),
        ),
        shapes=RouteShapes("Show the overview.", query=HistoryQuery, media_type=PAGE),
    ),
    RouteAccess(
        "GET",
        "/api/v1/overview",
        LoginNeed.LOGIN,
        (_WHOLE_CLUSTER,),
        shapes=RouteShapes("Describe the cluster, and what needs attention.", ClusterOverview),
    ),
    RouteAccess(
        "GET",
        "/api/v1/overview/history",
        LoginNeed.LOGIN,
        (
            optional(Operation.DESCRIBE, CLUSTER, "leaves out the series of brokers"),
            optional(Operation.DESCRIBE, TOPIC, "leaves out the series of the other topics"),
        ),
        shapes=RouteShapes("Read rates and latencies of the last minutes.", History, HistoryQuery),
    ),
)
