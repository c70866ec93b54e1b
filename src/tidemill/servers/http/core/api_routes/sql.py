"""The routes of SQL."""

from tidemill.servers.http.core.route_access import RouteAccess

ROUTES: tuple[RouteAccess, ...] = ()
