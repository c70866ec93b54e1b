"""The overview in the JSON API: the state of the cluster, what needs attention, and rates over time."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from math import fsum
from typing import Any

from tidemill.broker.broker import BrokerNode
from tidemill.broker.history import SAMPLE_MS
from tidemill.security.client_rights import ClientRights
from tidemill.security.core.resources import CLUSTER_NAME, Operation, ResourceType
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext, ApiHandler
from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.servers.http.api.broker_parts import REUSED_S, Gathered, PartKind
from tidemill.servers.http.api.broker_reports import REPORT
from tidemill.servers.http.api.cluster_status import counts_of, read_status
from tidemill.servers.http.api.group_parts import GROUPS
from tidemill.servers.http.api.pipelines import troubled_pipelines
from tidemill.servers.http.core.attention import attention
from tidemill.wire.http.cluster import BrokerReport
from tidemill.wire.http.groups import GroupsQuestion
from tidemill.wire.http.overview import (
    ClusterOverview,
    History,
    HistoryPart,
    HistoryQuery,
    HistoryQuestion,
    HistoryValues,
)

GROUPS_LOOKED_AT = 50
"""The groups with the largest lag, among which those are found that are stuck."""
SERIES = (
    *("records_in", "bytes_in", "bytes_out", "requests", "errors", "connections", "deliveries"),
    *("cpu_cores", "memory_bytes", "produce_p50_s", "produce_p99_s", "fetch_p50_s", "fetch_p99_s"),
    *("topic_records_in", "topic_bytes_in", "topic_bytes_out"),
)
SLOTS_MAX = 400
MINUTE_SLOTS = 60_000 // SAMPLE_MS


async def read_overview(context: ApiContext, call: ApiCall[None, None]) -> ClusterOverview:
    """`GET /api/v1/overview`."""
    status = await read_status(context, call.rights)
    groups = await context.parts.gather(GROUPS, call.rights, _most_behind())
    reports = [each.report for each in status.brokers if each.report is not None]
    counts = counts_of(context.broker.view.image)
    return ClusterOverview(
        cluster_id=context.broker.cluster_id,
        controller=status.controller,
        brokers=status.brokers,
        topics=counts.topics,
        partitions=counts.partitions,
        without_leader=counts.without_leader,
        under_replicated=counts.under_replicated,
        under_min_isr=counts.under_min_isr,
        groups=sum(part.total for part in groups.parts.values()),
        timelines=_timelines(reports),
        log_bytes=sum(each.log_bytes for each in reports),
        connections=sum(each.connections for each in reports),
        attention=attention(
            counts,
            status.brokers,
            [row for part in groups.parts.values() for row in part.groups],
            await troubled_pipelines(context, call.rights),
        ),
        unreachable_brokers=status.unreachable_brokers,
    )


def _timelines(reports: Sequence[BrokerReport]) -> int:
    """All timelines: brokers that share a store all report the same ones."""
    own = sum(each.timelines for each in reports if not each.shares_timelines)
    return own + max((each.timelines for each in reports if each.shares_timelines), default=0)


async def read_history(context: ApiContext, call: ApiCall[HistoryQuery, None]) -> History:
    """`GET /api/v1/overview/history`."""
    query = call.query
    return await history_of(context, call.rights, SERIES, query.minutes, query.broker)


async def history_of(
    context: ApiContext, rights: ClientRights, series: Sequence[str], minutes: int, broker: int | None = None
) -> History:
    """Some series of the cluster or of one broker, up to the last slot that every broker has sampled."""
    asked = HistoryQuestion(series=list(series), last_slot=sampled_slot(context), slots=minutes * MINUTE_SLOTS)
    if broker is None:
        gathered = await context.parts.gather(HISTORY, rights, asked)
    else:
        if broker not in context.broker.view.image.brokers and broker != context.broker.node_id:
            raise ApiProblem(404, f"broker {broker} is not running; see the brokers at /cluster")
        gathered = Gathered({broker: await context.parts.at(broker, HISTORY, rights, asked)}, [])
    return await asyncio.to_thread(history_from, gathered, asked)


def sampled_slot(context: ApiContext) -> int:
    """The last slot that every broker has sampled."""
    return context.broker.history.last_slot - 1


def history_from(gathered: Gathered[HistoryPart], asked: HistoryQuestion) -> History:
    """The history of all brokers that have answered."""
    return History(
        times_ms=[slot * SAMPLE_MS for slot in range(asked.last_slot - asked.slots + 1, asked.last_slot + 1)],
        interval_ms=SAMPLE_MS,
        series=list(combined(list(gathered.parts.values()), asked.series)),
        unreachable_brokers=gathered.unreachable,
    )


def combined(parts: Sequence[HistoryPart], series: Sequence[str]) -> Iterable[HistoryValues]:
    """The values of all brokers together: their sum, or the largest one."""
    largest = {name for part in parts for name in part.largest}
    for name in series:
        keys = sorted({key for part in parts for key in part.series.get(name, {})})
        for key in keys:
            rows = [part.series[name][key] for part in parts if key in part.series.get(name, {})]
            # The same to the last bit in every order of the brokers, so that all brokers show the same.
            join: Callable[[Iterable[float]], float] = max if name in largest else fsum
            yield HistoryValues(
                name=name, key=key, values=[_joined(column, join) for column in zip(*rows, strict=True)]
            )


def _joined(column: Iterable[float | None], join: Callable[[Iterable[float]], float]) -> float | None:
    known = [value for value in column if value is not None]
    return join(known) if known else None


def _most_behind() -> GroupsQuestion:
    return GroupsQuestion(search="", state="", type="", sort="lag", descending=True, limit=GROUPS_LOOKED_AT)


async def _history_here(broker: BrokerNode, rights: ClientRights, asked: HistoryQuestion) -> HistoryPart:
    """The series of this broker. Those of the broker need DESCRIBE on the cluster, those by topic on the topic."""
    history = broker.history
    sees_cluster = rights.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    found: dict[str, dict[str, list[float | None]]] = {}
    slots = min(asked.slots, SLOTS_MAX)
    window = history.window(asked.series, slots, last_slot=asked.last_slot, keys=asked.keys)
    largest = []
    for name, values in window.values.items():
        series = history.series(name)
        if series is None:
            continue
        if not series.is_sum:
            largest.append(name)
        if series.resource is None:
            found[name] = dict(values) if sees_cluster else {}
        else:
            kind = series.resource
            found[name] = {key: each for key, each in values.items() if rights.allows(Operation.DESCRIBE, kind, key)}
    return HistoryPart(series=found, largest=largest)


HISTORY = PartKind("history", HistoryQuestion, HistoryPart, _history_here, REUSED_S)
HANDLERS: dict[str, ApiHandler] = {
    "GET /api/v1/overview": read_overview,
    "GET /api/v1/overview/history": read_history,
}
PARTS: Sequence[PartKind[Any, Any]] = (REPORT, HISTORY)
