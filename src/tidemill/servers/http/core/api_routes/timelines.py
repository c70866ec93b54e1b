"""The routes of timelines. The ACLs of the topic of the same name protect a timeline."""

from tidemill.security.core.resources import Operation
from tidemill.servers.http.core.route_access import (
    CLUSTER,
    PAGE,
    TOPIC,
    LoginNeed,
    RouteAccess,
    RouteRight,
    RouteShapes,
    optional,
)
from tidemill.wire.http.timelines import (
    ChangeOutcomes,
    FuturePageQuery,
    FutureQuery,
    FutureView,
    MessageIds,
    MessagePage,
    MessagesQuery,
    MessageView,
    MovesInput,
    RetriesInput,
    RetriesResult,
    TimelineCreated,
    TimelineInput,
    TimelinePage,
    TimelinePlace,
    TimelineQuery,
    TimelineSettingsInput,
    TimelineView,
)

_LISTED = optional(Operation.DESCRIBE, TOPIC, "leaves out the other timelines")
_DESCRIBED = optional(Operation.DESCRIBE, TOPIC, "on the timeline")
_READ = optional(Operation.READ, TOPIC, "on the timeline, for its messages")
_WRITTEN = optional(Operation.WRITE, TOPIC, "on the timeline")
_CREATED = optional(Operation.CREATE, TOPIC, "on the timeline, or on the cluster")
_DEAD = optional(Operation.WRITE, TOPIC, "on the target of dead letters, and CREATE if it does not exist")
_NAMED = "/api/v1/timelines/{name}"
_FILE = "application/octet-stream"


def _row(
    method: str, path: str, rights: tuple[RouteRight, ...], shapes: RouteShapes, *, changes: bool = False
) -> RouteAccess:
    return RouteAccess(method, path, LoginNeed.LOGIN, rights, shapes=shapes, changes=changes)


ROUTES: tuple[RouteAccess, ...] = (
    _row("GET", "/timelines", (_LISTED,), RouteShapes("Show the timelines.", query=TimelineQuery, media_type=PAGE)),
    _row(
        "GET",
        "/timelines/{name}",
        (_DESCRIBED,),
        RouteShapes("Show a timeline and its future.", query=FuturePageQuery, media_type=PAGE),
    ),
    _row(
        "GET",
        "/timelines/{name}/messages",
        (_READ,),
        RouteShapes("Show the messages of a timeline.", query=MessagesQuery, media_type=PAGE),
    ),
    _row(
        "GET",
        "/timelines/{name}/messages/{id}",
        (_READ,),
        RouteShapes("Show a message.", query=TimelinePlace, media_type=PAGE),
    ),
    _row(
        "GET",
        "/timelines/{name}/settings",
        (_DESCRIBED,),
        RouteShapes("Show the settings of a timeline.", query=TimelinePlace, media_type=PAGE),
    ),
    _row(
        "GET",
        "/api/v1/timelines",
        (_LISTED,),
        RouteShapes("List timelines with their messages by state.", TimelinePage, TimelineQuery),
    ),
    _row(
        "POST",
        "/api/v1/timelines",
        (_CREATED, _DEAD),
        RouteShapes("Create a timeline; repeating it changes nothing.", TimelineCreated, body=TimelineInput),
        changes=True,
    ),
    _row(
        "GET",
        _NAMED,
        (_DESCRIBED,),
        RouteShapes("Describe a timeline: settings, messages by state, consumers.", TimelineView, TimelinePlace),
    ),
    _row(
        "PATCH",
        _NAMED,
        (optional(Operation.ALTER_CONFIGS, TOPIC, "on the timeline"), _DEAD),
        RouteShapes("Change settings of a timeline; its consumers connect again.", body=TimelineSettingsInput),
        changes=True,
    ),
    _row(
        "DELETE",
        _NAMED,
        (optional(Operation.DELETE, TOPIC, "on the timeline"),),
        RouteShapes("Delete a timeline and all its messages.", query=TimelinePlace),
        changes=True,
    ),
    _row(
        "GET",
        f"{_NAMED}/future",
        (_DESCRIBED,),
        RouteShapes("Count the messages of a timeline by due time.", FutureView, FutureQuery),
    ),
    _row(
        "GET",
        f"{_NAMED}/messages",
        (_READ,),
        RouteShapes("List messages by due time.", MessagePage, MessagesQuery),
    ),
    _row(
        "GET",
        f"{_NAMED}/messages/{{id}}",
        (_READ,),
        RouteShapes("Show a message with its content.", MessageView, TimelinePlace),
    ),
    _row(
        "GET",
        f"{_NAMED}/messages/{{id}}/body",
        (_READ,),
        RouteShapes("Download the body of a message.", query=TimelinePlace, media_type=_FILE),
    ),
    _row(
        "POST",
        f"{_NAMED}/cancellations",
        (_WRITTEN,),
        RouteShapes("Cancel messages that no consumer holds.", ChangeOutcomes, body=MessageIds),
        changes=True,
    ),
    _row(
        "POST",
        f"{_NAMED}/moves",
        (_WRITTEN,),
        RouteShapes("Give messages another due time.", ChangeOutcomes, body=MovesInput),
        changes=True,
    ),
    _row(
        "POST",
        f"{_NAMED}/releases",
        (_READ, optional(Operation.ALTER, CLUSTER, "because the leases are those of other clients")),
        RouteShapes("End leases of consumers; the messages are due at once.", ChangeOutcomes, body=MessageIds),
        changes=True,
    ),
    _row(
        "POST",
        f"{_NAMED}/retries",
        (_WRITTEN, optional(Operation.WRITE, TOPIC, "on the timelines that the dead letters return to")),
        RouteShapes("Return dead letters to their timelines, or count them.", RetriesResult, body=RetriesInput),
        changes=True,
    ),
)
