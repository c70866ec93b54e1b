"""The routes of the JSON API and of the console, one module for each noun."""

from tidemill.servers.http.core.api_routes import (
    brokers,
    cluster,
    groups,
    logs,
    openapi,
    overview,
    pipelines,
    records,
    security,
    sql,
    timelines,
    topics,
)

ROUTES = (
    *overview.ROUTES,
    *topics.ROUTES,
    *records.ROUTES,
    *groups.ROUTES,
    *timelines.ROUTES,
    *pipelines.ROUTES,
    *sql.ROUTES,
    *cluster.ROUTES,
    *security.ROUTES,
    *logs.ROUTES,
    *brokers.ROUTES,
    *openapi.ROUTES,
)
