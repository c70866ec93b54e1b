"""All pages of the console by route."""

from tidemill.servers.http.console import (
    cluster,
    groups,
    logs,
    overview,
    pipelines,
    records,
    security,
    sql,
    timelines,
    topics,
)
from tidemill.servers.http.console.page import PageHandler

_MODULES = (overview, topics, records, groups, timelines, pipelines, sql, cluster, security, logs)
PAGES: dict[str, PageHandler] = {name: handler for module in _MODULES for name, handler in module.PAGES.items()}
