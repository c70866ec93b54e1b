"""The routes of consumer groups."""

from tidemill.security.core.resources import Operation
from tidemill.servers.http.core.route_access import GROUP, TOPIC, LoginNeed, RouteAccess, RouteShapes, optional
from tidemill.wire.http.groups import GroupPage, GroupQuery

_LISTED = optional(Operation.DESCRIBE, GROUP, "leaves out the other groups")
_TOPICS = optional(Operation.DESCRIBE, TOPIC, "leaves out the other topics, and their lag")

ROUTES: tuple[RouteAccess, ...] = (
    RouteAccess(
        "GET",
        "/api/v1/groups",
        LoginNeed.LOGIN,
        (_LISTED, _TOPICS),
        shapes=RouteShapes("List consumer groups with their state, members and lag.", GroupPage, GroupQuery),
    ),
)
