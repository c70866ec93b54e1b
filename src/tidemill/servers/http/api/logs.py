"""The log in the JSON API: recent warnings and errors, which each broker keeps in memory."""

from collections.abc import Sequence
from typing import Any

from tidemill.broker.broker import BrokerNode
from tidemill.broker.recent_log import ERROR, LogText, RecentEvent
from tidemill.security.client_rights import ClientRights
from tidemill.security.core.resources import CLUSTER_NAME, Operation, ResourceType
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext, ApiHandler
from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.servers.http.api.broker_parts import Gathered, PartKind
from tidemill.wire.http.logs import LogEvent, LogField, LogPage, LogPart, LogQuery, LogQuestion


async def list_events(context: ApiContext, call: ApiCall[LogQuery, None]) -> LogPage:
    """`GET /api/v1/logs`."""
    query = call.query
    end = query.page * query.rows
    asked = LogQuestion(level=query.level, search=query.search, since_ms=query.since_ms, limit=end)
    if query.broker is None:
        gathered = await context.parts.gather(LOGS, call.rights, asked)
    else:
        if query.broker != context.broker.node_id and query.broker not in context.broker.view.image.brokers:
            raise ApiProblem(404, f"broker {query.broker} is not running; see the brokers at /cluster")
        gathered = Gathered({query.broker: await context.parts.at(query.broker, LOGS, call.rights, asked)}, [])
    parts = gathered.parts.values()
    events = sorted((event for part in parts for event in part.events), key=_newest_first)
    warnings, errors = sum(part.warnings for part in parts), sum(part.errors for part in parts)
    return LogPage(
        events=events[end - query.rows : end],
        total=errors if query.level == ERROR else warnings + errors,
        warnings=warnings,
        errors=errors,
        dropped=sum(part.dropped for part in parts),
        unreachable_brokers=gathered.unreachable,
    )


def _newest_first(event: LogEvent) -> tuple[int, int, int]:
    return -event.last_ms, event.broker, -event.number


async def _events_here(broker: BrokerNode, rights: ClientRights, asked: LogQuestion) -> LogPart:
    """The events of this broker that match."""
    rights.check(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    log = broker.environment.recent_log
    if log is None:
        return LogPart(events=[], warnings=0, errors=0, dropped=0)
    words = asked.search.casefold()
    found = [each for each in log.newest() if each.last_ms >= asked.since_ms and _matches(each.text, words)]
    errors = [each for each in found if each.text.level == ERROR]
    shown = errors if asked.level == ERROR else found
    return LogPart(
        events=[_event(broker.node_id, each) for each in shown[: asked.limit]],
        warnings=len(found) - len(errors),
        errors=len(errors),
        dropped=log.dropped,
    )


def _matches(text: LogText, words: str) -> bool:
    """Whether a part of the text contains the words, which are in lower case."""
    if not words:
        return True
    pieces = (text.event, text.logger, *(piece for pair in text.fields for piece in pair), text.traceback)
    return any(words in piece.casefold() for piece in pieces)


def _event(broker: int, event: RecentEvent) -> LogEvent:
    text = event.text
    return LogEvent(
        broker=broker,
        number=event.number,
        level="error" if text.level == ERROR else "warning",
        logger=text.logger,
        event=text.event,
        fields=[LogField(name=name, value=value) for name, value in text.fields],
        traceback=text.traceback,
        count=event.occurrences,
        first_ms=event.first_ms,
        last_ms=event.last_ms,
    )


LOGS = PartKind("logs", LogQuestion, LogPart, _events_here)
HANDLERS: dict[str, ApiHandler] = {"GET /api/v1/logs": list_events}
PARTS: Sequence[PartKind[Any, Any]] = (LOGS,)
