"""Consumer groups in the JSON API."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from tidemill.security.client_rights import ClientRights
from tidemill.servers.http.api import group_changes
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext, ApiHandler
from tidemill.servers.http.api.broker_parts import PartKind
from tidemill.servers.http.api.group_description import GROUP, describe_group
from tidemill.servers.http.api.group_lag_history import LAG_HISTORY, show_lag
from tidemill.servers.http.api.group_parts import GROUPS, TOPIC_GROUPS, UNKNOWN_LAG, largest
from tidemill.servers.http.api.paging import rows_of
from tidemill.servers.http.api.share_positions import SHARE, SHARE_LAGS, SHARE_POSITIONS, share_lags
from tidemill.wire.http.groups import (
    GroupDescription,
    GroupDescriptionQuery,
    GroupPage,
    GroupQuery,
    GroupRow,
    GroupsQuestion,
    TopicGroupRow,
    TopicGroups,
    TopicGroupsQuestion,
)

R = TypeVar("R", GroupRow, TopicGroupRow)


async def list_groups(context: ApiContext, call: ApiCall[GroupQuery, None]) -> GroupPage:
    """A page of the groups that the client may describe."""
    query = call.query
    asked = GroupsQuestion(
        search=query.search,
        state=query.state,
        type=query.type,
        sort=query.sort,
        descending=query.descending,
        limit=query.page * query.rows,
    )
    gathered = await context.parts.gather(GROUPS, call.rights, asked)
    parts = gathered.parts.values()
    states = sum((Counter(part.states) for part in parts), Counter[str]())
    rows = await _with_share_lags(context, call.rights, [row for part in parts for row in part.groups])
    loading = [node_id for node_id, part in gathered.parts.items() if part.is_loading]
    return GroupPage(
        groups=rows_of(rows, query, _sort_key(query.sort)),
        total=sum(part.total for part in parts),
        states=dict(sorted(states.items())),
        unreachable_brokers=sorted([*gathered.unreachable, *loading]),
    )


async def show_group(context: ApiContext, call: ApiCall[GroupDescriptionQuery, None]) -> GroupDescription:
    """One group."""
    return await describe_group(context, call.rights, call.name(), call.query)


async def topic_groups(context: ApiContext, rights: ClientRights, topic: str, search: str = "") -> TopicGroups:
    """The groups that read or have read a topic, with their lag in it; the largest lag first."""
    gathered = await context.parts.gather(TOPIC_GROUPS, rights, TopicGroupsQuestion(topic=topic, search=search))
    parts = gathered.parts.values()
    rows = await _with_share_lags(context, rights, [row for part in parts for row in part.groups], topic)
    return TopicGroups(
        groups=largest(rows),
        total=sum(part.total for part in parts),
        unreachable_brokers=gathered.unreachable,
    )


async def _with_share_lags(context: ApiContext, rights: ClientRights, rows: list[R], topic: str = "") -> list[R]:
    """Fill in the lag of share groups, which their coordinators do not know."""
    lags = await share_lags(context, rights, {row.group for row in rows if row.type == SHARE}, topic)
    return [replace(row, lag=lags.get(row.group)) if row.type == SHARE else row for row in rows]


def _sort_key(column: str) -> Any:
    def key(row: GroupRow) -> Any:
        if column == "lag":
            return UNKNOWN_LAG if row.lag is None else row.lag, row.group
        return getattr(row, {"topics": "topic_count"}.get(column, column)), row.group

    return key


HANDLERS: dict[str, ApiHandler] = {
    "GET /api/v1/groups": list_groups,
    "GET /api/v1/groups/{name}": show_group,
    "GET /api/v1/groups/{name}/lag": show_lag,
    **group_changes.HANDLERS,
}
PARTS: Sequence[PartKind[Any, Any]] = (GROUPS, TOPIC_GROUPS, GROUP, LAG_HISTORY, SHARE_POSITIONS, SHARE_LAGS)
