"""The routes of consumer groups."""

from tidemill.security.core.resources import Operation
from tidemill.servers.http.core.route_access import GROUP, PAGE, TOPIC, LoginNeed, RouteAccess, RouteShapes, optional
from tidemill.wire.http.groups import (
    DeletedOffsets,
    GroupDescription,
    GroupDescriptionQuery,
    GroupLagHistory,
    GroupPage,
    GroupQuery,
    LagHistoryQuery,
    OffsetsReset,
    RecordSkip,
    ResetOutcome,
    SkippedRecord,
)

_LISTED = optional(Operation.DESCRIBE, GROUP, "leaves out the other groups")
_SHOWN = optional(Operation.DESCRIBE, GROUP, "for the group")
_TOPICS = optional(Operation.DESCRIBE, TOPIC, "leaves out the other topics, and their lag")
_COMMITTED = (optional(Operation.READ, GROUP, "for the group"), optional(Operation.READ, TOPIC, "for its topics"))
_DELETED = optional(Operation.DELETE, GROUP, "for the group")

ROUTES: tuple[RouteAccess, ...] = (
    RouteAccess(
        "GET",
        "/groups",
        LoginNeed.LOGIN,
        (_LISTED, _TOPICS),
        shapes=RouteShapes("Show the consumer groups.", query=GroupQuery, media_type=PAGE),
    ),
    RouteAccess(
        "GET",
        "/groups/{name}",
        LoginNeed.LOGIN,
        (_SHOWN, _TOPICS),
        shapes=RouteShapes("Show one consumer group.", query=GroupDescriptionQuery, media_type=PAGE),
    ),
    RouteAccess(
        "GET",
        "/api/v1/groups",
        LoginNeed.LOGIN,
        (_LISTED, _TOPICS),
        shapes=RouteShapes("List consumer groups with their state, members and lag.", GroupPage, GroupQuery),
    ),
    RouteAccess(
        "GET",
        "/api/v1/groups/{name}",
        LoginNeed.LOGIN,
        (_SHOWN, _TOPICS),
        shapes=RouteShapes(
            "Show one group: members, partitions, offsets and lag.", GroupDescription, GroupDescriptionQuery
        ),
    ),
    RouteAccess(
        "GET",
        "/api/v1/groups/{name}/lag",
        LoginNeed.LOGIN,
        (_SHOWN, optional(Operation.DESCRIBE, TOPIC, "for all topics of the group")),
        shapes=RouteShapes("Show the lag of a group over the last minutes.", GroupLagHistory, LagHistoryQuery),
    ),
    RouteAccess(
        "DELETE",
        "/api/v1/groups/{name}",
        LoginNeed.LOGIN,
        (_DELETED,),
        shapes=RouteShapes("Delete a group without members, with its offsets."),
        changes=True,
    ),
    RouteAccess(
        "POST",
        "/api/v1/groups/{name}/offsets",
        LoginNeed.LOGIN,
        _COMMITTED,
        shapes=RouteShapes(
            "Reset the offsets of a group without members, or preview it.", ResetOutcome, body=OffsetsReset
        ),
        changes=True,
    ),
    RouteAccess(
        "POST",
        "/api/v1/groups/{name}/skip",
        LoginNeed.LOGIN,
        _COMMITTED,
        shapes=RouteShapes("Skip one record of a partition, or preview it.", SkippedRecord, body=RecordSkip),
        changes=True,
    ),
    RouteAccess(
        "DELETE",
        "/api/v1/groups/{name}/offsets/{topic}",
        LoginNeed.LOGIN,
        (_DELETED, optional(Operation.READ, TOPIC, "for the topic")),
        shapes=RouteShapes("Delete the offsets of a topic that no member of the group reads.", DeletedOffsets),
        changes=True,
    ),
    RouteAccess(
        "DELETE",
        "/api/v1/groups/{name}/members/{member}",
        LoginNeed.LOGIN,
        (optional(Operation.READ, GROUP, "for the group"),),
        shapes=RouteShapes("Remove a member. A consumer that still runs joins again."),
        changes=True,
    ),
)
