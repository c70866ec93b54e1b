"""The routes of the log."""

from tidemill.servers.http.core.route_access import RouteAccess

ROUTES: tuple[RouteAccess, ...] = ()
