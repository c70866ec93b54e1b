"""The routes of the cluster."""

from tidemill.servers.http.core.route_access import RouteAccess

ROUTES: tuple[RouteAccess, ...] = ()
