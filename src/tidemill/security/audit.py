"""The audit log: logins, refusals and changes, with who, from where and what. The logger is `tidemill.audit`.

A client can repeat a login or a refused request without end, so these events are limited. The same event is logged
once in REPEAT_S, and all of them together EVENTS_PER_S times in a second. The next line has the number of events that
were left out. Changes are always logged. No event has a password or another secret.
"""

import time
from collections.abc import Callable
from typing import Any

import structlog

from tidemill.security.core.principal import Principal
from tidemill.security.core.resources import Operation, ResourceType

REPEAT_S = 60.0
"""The time in which the same event is logged once."""
EVENTS_PER_S = 50
REMEMBERED_EVENTS_MAX = 5000
SHOWN_CHARS = 200

log = structlog.get_logger("tidemill.audit")

EventKey = tuple[object, ...]


class EventLimiter:
    """Which events are logged: each once in a while, and not too many in all."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._recent: dict[EventKey, tuple[float, int]] = {}
        self._second = -1
        self._logged = 0
        self._left_out = 0

    def admit(self, key: EventKey) -> dict[str, int] | None:
        """The counts of events that were left out (`repeated` of this one, `left_out` of others); None: do not log."""
        now = self._clock_s()
        until, repeated = self._recent.get(key, (0.0, 0))
        if now < until:
            self._recent[key] = (until, repeated + 1)
            return None
        if int(now) != self._second:
            self._second, self._logged = int(now), 0
        if self._logged >= EVENTS_PER_S:
            self._left_out += 1
            return None
        self._logged += 1
        self._remember(key, now)
        counts = {"repeated": repeated, "left_out": self._left_out}
        self._left_out = 0
        return {name: count for name, count in counts.items() if count}

    def _remember(self, key: EventKey, now: float) -> None:
        if len(self._recent) >= REMEMBERED_EVENTS_MAX:
            self._recent = {each: known for each, known in self._recent.items() if now < known[0]}
        if len(self._recent) >= REMEMBERED_EVENTS_MAX:
            self._recent.clear()
        self._recent[key] = (now + REPEAT_S, 0)


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
