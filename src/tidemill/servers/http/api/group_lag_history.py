"""The lag of groups over time. The coordinator of a group samples it; a former coordinator has the earlier samples."""

from collections.abc import Sequence

from tidemill.broker.broker import BrokerNode
from tidemill.broker.group_lag_history import LAG_RECORDS, LAG_SECONDS
from tidemill.broker.history import SAMPLE_MS
from tidemill.security.client_rights import ClientRights
from tidemill.security.core.resources import Operation, ResourceType
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext
from tidemill.servers.http.api.broker_parts import PartKind
from tidemill.servers.http.api.group_parts import describes_topics
from tidemill.wire.http.groups import (
    GroupLagHistory,
    LagHistoryPart,
    LagHistoryQuery,
    LagHistoryQuestion,
    LagSample,
    LagSeries,
)

MINUTE_MS = 60_000


async def show_lag(context: ApiContext, call: ApiCall[LagHistoryQuery, None]) -> GroupLagHistory:
    """The lag of one group over the last minutes."""
    call.rights.check(Operation.DESCRIBE, ResourceType.GROUP, call.name())
    slots = call.query.minutes * MINUTE_MS // SAMPLE_MS
    return (await lag_histories(context, call.rights, [call.name()], slots))[0]


async def lag_histories(
    context: ApiContext, rights: ClientRights, groups: Sequence[str], slots: int
) -> list[GroupLagHistory]:
    """The lag of some groups over the last slots."""
    question = LagHistoryQuestion(groups=list(groups), slots=slots)
    parts = (await context.parts.gather(LAG_HISTORY, rights, question)).parts.values()
    last_slot = max(part.last_slot for part in parts)
    return [
        GroupLagHistory(
            group=group,
            samples=[_sample(group, list(parts), slot) for slot in range(last_slot - slots + 1, last_slot + 1)],
        )
        for group in groups
    ]


def _sample(group: str, parts: Sequence[LagHistoryPart], slot: int) -> LagSample:
    """One sample. A broker that does not coordinate the group has sampled 0, so the largest value counts."""
    found = [
        (series.records[at], series.seconds[at])
        for part in parts
        if (series := part.series.get(group)) is not None
        and 0 <= (at := slot - part.last_slot - 1 + len(series.records)) < len(series.records)
    ]
    records = [each for each, _ in found if each is not None]
    seconds = [each for _, each in found if each is not None]
    return LagSample(
        time_ms=slot * SAMPLE_MS,
        lag=int(max(records)) if records else None,
        lag_s=max(seconds) if seconds else None,
    )


async def _history_here(broker: BrokerNode, rights: ClientRights, asked: LagHistoryQuestion) -> LagHistoryPart:
    describes = describes_topics(rights)
    visible = [
        group
        for group in asked.groups
        if rights.allows(Operation.DESCRIBE, ResourceType.GROUP, group)
        and all(describes(topic) for topic in broker.groups.topics_of(group))  # the samples count all topics
    ]
    window = broker.history.window([LAG_RECORDS, LAG_SECONDS], asked.slots, keys=visible)
    records, seconds = window.values[LAG_RECORDS], window.values[LAG_SECONDS]
    return LagHistoryPart(
        last_slot=window.last_slot,
        series={group: LagSeries(records=records[group], seconds=seconds[group]) for group in visible},
    )


LAG_HISTORY = PartKind("group-lag-history", LagHistoryQuestion, LagHistoryPart, _history_here)
