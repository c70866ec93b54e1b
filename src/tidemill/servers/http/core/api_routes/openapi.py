"""The route of the OpenAPI document."""

from tidemill.security.core.resources import Operation
from tidemill.servers.http.core.route_access import CLUSTER, LoginNeed, RouteAccess, RouteShapes, optional

ROUTES: tuple[RouteAccess, ...] = (
    RouteAccess(
        "GET",
        "/api/v1/openapi.json",
        LoginNeed.LOGIN,
        (optional(Operation.DESCRIBE, CLUSTER, "not needed; the document is the same for every client"),),
        shapes=RouteShapes("Describe this API as an OpenAPI 3.1 document.", dict),
    ),
)
