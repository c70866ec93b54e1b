"""Every route of the HTTP server, with the login and the rights that it needs.

The routes are made from this table, so none can be without a row. Rights on the cluster are checked before a handler
runs. The handler checks rights on topics, timelines and groups: it leaves out what a client may not see. The page
docs/reference/authorization.md is made from the table.
"""

from tidemill.security.core.resources import Operation
from tidemill.servers.http.core import api_routes
from tidemill.servers.http.core.route_access import CLUSTER as _CLUSTER
from tidemill.servers.http.core.route_access import TOPIC as _TOPIC
from tidemill.servers.http.core.route_access import LoginNeed, RouteAccess, RouteRight

_DETAILS = RouteRight(Operation.DESCRIBE, _CLUSTER, "for more than the state", is_required=False)
_TOPICS = RouteRight(Operation.DESCRIBE, _TOPIC, "leaves out the other topics", is_required=False)
_TIMELINES = RouteRight(Operation.DESCRIBE, _TOPIC, "leaves out the other timelines", is_required=False)
_TOPIC_SETTINGS = RouteRight(Operation.DESCRIBE_CONFIGS, _TOPIC, "for the settings of a topic", is_required=False)
_WHOLE_CLUSTER = RouteRight(Operation.DESCRIBE, _CLUSTER)

ROUTES = (
    *api_routes.ROUTES,
    RouteAccess("GET", "/login", LoginNeed.NONE),
    RouteAccess("POST", "/login", LoginNeed.NONE, has_form=True),
    RouteAccess("POST", "/logout", LoginNeed.OPTIONAL, has_form=True),
    RouteAccess("GET", "/static/{name}", LoginNeed.NONE, note="style and scripts of the console"),
    RouteAccess("GET", "/metrics", LoginNeed.LOGIN, (_WHOLE_CLUSTER,)),
    RouteAccess("GET", "/health", LoginNeed.OPTIONAL, (_DETAILS,)),
    RouteAccess("GET", "/health/live", LoginNeed.NONE),
    RouteAccess("GET", "/health/ready", LoginNeed.OPTIONAL, (_DETAILS,)),
    RouteAccess("GET", "/api/status", LoginNeed.LOGIN, (_WHOLE_CLUSTER,)),
    RouteAccess("GET", "/api/topics", LoginNeed.LOGIN, (_TOPICS, _TOPIC_SETTINGS)),
    RouteAccess("GET", "/api/timelines", LoginNeed.LOGIN, (_TIMELINES,)),
    RouteAccess("GET", "/api/tables/{name}", LoginNeed.BROKER, note="part of a query that another broker runs"),
)
