"""The routes of consumer groups."""

from tidemill.servers.http.core.route_access import RouteAccess

ROUTES: tuple[RouteAccess, ...] = ()
