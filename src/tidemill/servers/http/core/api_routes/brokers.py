"""The routes between brokers: the part of a view that one broker has."""

from tidemill.servers.http.core.route_access import LoginNeed, RouteAccess

ROUTES: tuple[RouteAccess, ...] = (
    RouteAccess(
        "POST",
        "/api/v1/parts/{name}",
        LoginNeed.BROKER,
        note="part of a page that another broker shows; the rights are those of the client of the page",
    ),
)
