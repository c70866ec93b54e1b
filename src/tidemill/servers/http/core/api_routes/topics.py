"""The routes of topics."""

from tidemill.security.core.resources import Operation
from tidemill.servers.http.core.route_access import PAGE, TOPIC, LoginNeed, RouteAccess, RouteShapes, optional
from tidemill.wire.http.topics import TopicPage, TopicQuery

_LISTED = optional(Operation.DESCRIBE, TOPIC, "leaves out the other topics")

ROUTES: tuple[RouteAccess, ...] = (
    RouteAccess(
        "GET",
        "/topics",
        LoginNeed.LOGIN,
        (_LISTED,),
        shapes=RouteShapes("Show the topics.", query=TopicQuery, media_type=PAGE),
    ),
    RouteAccess(
        "GET",
        "/api/v1/topics",
        LoginNeed.LOGIN,
        (_LISTED,),
        shapes=RouteShapes("List topics with their size and offsets.", TopicPage, TopicQuery),
    ),
)
