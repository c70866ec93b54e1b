"""The routes of records."""

from tidemill.servers.http.core.route_access import RouteAccess

ROUTES: tuple[RouteAccess, ...] = ()
