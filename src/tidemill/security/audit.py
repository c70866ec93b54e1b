"""The audit log: logins, refusals and changes, with who, from where and what. The logger is `tidemill.audit`.

A client can repeat a login or a refused request without end, so these events are limited. The same event is logged
once in REPEAT_S, and all of them together EVENTS_PER_S times in a second. The next line has the number of events that
were left out. Changes are always logged. No event has a password or another secret.
"""

import time
from collections.abc import Callable
from typing import Any

import structlog

from tidemill.security.core.event_limiter import EventLimiter
from tidemill.security.core.principal import Principal
from tidemill.security.core.resources import Operation, ResourceType

SHOWN_CHARS = 200

log = structlog.get_logger("tidemill.audit")


class Audit:
    """Writes the audit log of one broker."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._limiter = EventLimiter(clock_s)

    def login_succeeded(self, principal: Principal, host: str, mechanism: str, listener: str) -> None:
        """A client has authenticated."""
        self._limited("info", "login_succeeded", who=str(principal), host=host, mechanism=mechanism, listener=listener)

    def login_failed(self, name: str, host: str, mechanism: str, listener: str, reason: str) -> None:
        """A login was refused. `name` is what the client claims, or empty."""
        self._limited(
            "warning", "login_failed", who=name, host=host, mechanism=mechanism, listener=listener, reason=reason
        )

    def authorization_denied(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> None:
        """A client was refused an operation on a resource that it named."""
        self._limited(
            "warning",
            "authorization_denied",
            who=str(principal),
            host=host,
            operation=operation.name,
            resource_type=resource_type.name,
            name=name,
        )

    def changed(self, principal: Principal, host: str, what: str, /, **fields: Any) -> None:
        """A client has changed something: `what` is a fixed word such as `acls_created`."""
        shown = {key: _shown(value) for key, value in fields.items()}
        log.info("changed", who=_shown(str(principal)), host=host, what=what, **shown)

    def _limited(self, level: str, event: str, **fields: str) -> None:
        shown = {key: _shown(value) for key, value in fields.items()}
        counts = self._limiter.admit((event, *shown.values()))
        if counts is not None:
            getattr(log, level)(event, **shown, **counts)


def _shown(value: Any) -> Any:
    return value[:SHOWN_CHARS] if isinstance(value, str) else value
