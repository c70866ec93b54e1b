"""All handlers of the JSON API by route, and all parts that brokers ask each other for."""

from typing import Any

from tidemill.servers.http.api import (
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
from tidemill.servers.http.api.api_context import ApiHandler
from tidemill.servers.http.api.broker_parts import PartKind

_MODULES = (overview, topics, records, groups, timelines, pipelines, sql, cluster, security, logs, brokers, openapi)
HANDLERS: dict[str, ApiHandler] = {name: handler for module in _MODULES for name, handler in module.HANDLERS.items()}
PARTS: tuple[PartKind[Any, Any], ...] = tuple(part for module in _MODULES for part in module.PARTS)
