"""The pages of one topic in the console: overview, partitions, settings, groups and producers."""

import asyncio
from collections.abc import Sequence
from typing import Any

from tidemill.cluster.core.image import Topic
from tidemill.model.topic_settings import SETTINGS
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext
from tidemill.servers.http.api.groups import topic_groups
from tidemill.servers.http.api.overview import MINUTE_SLOTS
from tidemill.servers.http.api.paging import rows_of
from tidemill.servers.http.api.topic_history import BYTES_IN, BYTES_OUT, RECORDS_IN, topic_history
from tidemill.servers.http.api.topics import describe_topic, list_producers, list_settings
from tidemill.servers.http.console.charts import ChartBar
from tidemill.servers.http.console.overview import OverviewChart, bootstrap_of, drawn
from tidemill.servers.http.console.page import Page, PageHandler
from tidemill.servers.http.console.setting_values import readable_value
from tidemill.servers.http.console.topic_frame import topic_frame
from tidemill.wire.http.groups import TopicGroupRow
from tidemill.wire.http.topics import (
    PARTITIONS_AT_ONCE_MAX,
    PartitionQuery,
    PartitionRow,
    ProducerQuery,
    SettingQuery,
    TopicDescription,
    TopicGroupQuery,
    TopicHistoryQuery,
    TopicSettingRow,
)

MINUTES = (10, 30)
BARS_MAX = 100
"""The most partitions that have a bar of their own."""
GROUPS_SHOWN = 5
MAIN_SETTINGS = (
    *("cleanup.policy", "retention.ms", "retention.bytes", "min.insync.replicas"),
    *("compression.type", "max.message.bytes", "message.timestamp.type"),
)
CHARTS = (
    OverviewChart("Records produced", "rate", ((RECORDS_IN, "records"),)),
    OverviewChart("Throughput", "byte_rate", ((BYTES_IN, "in"), (BYTES_OUT, "out"))),
)


async def topic_page(context: ApiContext, call: ApiCall[TopicHistoryQuery, None]) -> Page:
    """`/topics/NAME`."""
    frame = topic_frame(context, call)
    topic, history, groups = await asyncio.gather(
        _described(context, call),
        topic_history(context, call.rights, [frame.name], call.query.minutes * MINUTE_SLOTS),
        topic_groups(context, call.rights, frame.name),
    )
    rates = {each.name: each.values for each in history.series}
    known = context.broker.view.topic(frame.name)
    values = {
        "frame": frame,
        "topic": topic,
        "asked": call.query,
        "minutes": MINUTES,
        "records": _sum(each.records for each in topic.partitions),
        "bytes": _sum(each.bytes for each in topic.partitions),
        "now": {name: (values or [None])[-1] for name, values in rates.items()},
        "charts": [drawn(chart, history, frame.name) for chart in CHARTS],
        "bars": _bars(topic.partitions),
        "groups": groups.groups[:GROUPS_SHOWN],
        "group_count": groups.total,
        "settings": _main_settings(known) if frame.sees_settings and known is not None else [],
        "bootstrap": bootstrap_of(context),
        "partitions_max": PARTITIONS_AT_ONCE_MAX,
    }
    return Page(frame.name, "topics/overview.html", values)


def _sum(counts: Any) -> int | None:
    known = list(counts)
    return None if None in known else sum(known)


def _bars(partitions: Sequence[PartitionRow]) -> list[ChartBar]:
    """The records of each partition, where there are a few of them."""
    if not 1 < len(partitions) <= BARS_MAX:
        return []
    return [ChartBar(str(each.partition), (each.records or 0,)) for each in partitions]


def _main_settings(topic: Topic) -> list[tuple[str, str, str, bool]]:
    """The settings that users ask for first: name, value, value with a unit, and whether the topic has its own."""
    found = []
    for name in MAIN_SETTINGS:
        value = getattr(topic.settings, SETTINGS[name].field)
        text = ",".join(value) if isinstance(value, tuple) else str(value)
        found.append((name, text, readable_value(name, text), name in topic.overrides))
    return found


async def _described(context: ApiContext, call: ApiCall[Any, None]) -> TopicDescription:
    return await describe_topic(context, ApiCall(call.request, call.client, None, None))


async def partitions_page(context: ApiContext, call: ApiCall[PartitionQuery, None]) -> Page:
    """`/topics/NAME/partitions`."""
    frame, query = topic_frame(context, call), call.query
    topic = await _described(context, call)
    found = [
        each
        for each in topic.partitions
        if query.search in str(each.partition)
        and (query.broker is None or query.broker in each.replicas)
        and (not query.problems or _has_problem(each))
    ]
    values = {
        "frame": frame,
        "topic": topic,
        "asked": query,
        "partitions": rows_of(found, query, lambda each: _partition_key(each, query.sort)),
        "total": len(found),
        "brokers": sorted({broker for each in topic.partitions for broker in each.replicas}),
        "partitions_max": PARTITIONS_AT_ONCE_MAX,
    }
    return Page(frame.name, "topics/partitions.html", values)


def _has_problem(partition: PartitionRow) -> bool:
    return partition.leader is None or len(partition.isr) < len(partition.replicas)


def _partition_key(partition: PartitionRow, column: str) -> Any:
    value = getattr(partition, column)
    return value is not None, 0 if value is None else value, partition.partition


async def settings_page(context: ApiContext, call: ApiCall[SettingQuery, None]) -> Page:
    """`/topics/NAME/settings`."""
    frame, query = topic_frame(context, call), call.query
    values: dict[str, Any] = {"frame": frame, "asked": query, "found": [], "total": 0, "own": 0}
    if frame.sees_settings:
        listed = await list_settings(context, ApiCall(call.request, call.client, None, None))
        values |= {
            "found": [each for each in listed.settings if _is_wanted(each, query)],
            "total": len(listed.settings),
            "own": sum(each.source == "topic" for each in listed.settings),
            "readable": {each.name: readable_value(each.name, each.value) for each in listed.settings},
            "readable_default": {each.name: readable_value(each.name, each.default) for each in listed.settings},
            "choices": {name: setting.choices for name, setting in SETTINGS.items()},
        }
    return Page(frame.name, "topics/settings.html", values)


def _is_wanted(setting: TopicSettingRow, query: SettingQuery) -> bool:
    wanted = query.search.casefold()
    is_found = wanted in setting.name.casefold() or wanted in setting.documentation.casefold()
    return is_found and (not query.changed or setting.source != "default")


async def groups_page(context: ApiContext, call: ApiCall[TopicGroupQuery, None]) -> Page:
    """`/topics/NAME/groups`."""
    frame, query = topic_frame(context, call), call.query
    found = await topic_groups(context, call.rights, frame.name, query.search)
    values = {
        "frame": frame,
        "asked": query,
        "found": found,
        "groups": rows_of(found.groups, query, lambda each: _group_key(each, query.sort)),
    }
    return Page(frame.name, "topics/groups.html", values)


def _group_key(group: TopicGroupRow, column: str) -> Any:
    if not column:
        return 0  # the largest lag first, as they came
    value = getattr(group, column)
    return value is not None, 0 if value is None else value


async def producers_page(context: ApiContext, call: ApiCall[ProducerQuery, None]) -> Page:
    """`/topics/NAME/producers`."""
    frame = topic_frame(context, call)
    found = await list_producers(context, call) if frame.may_read else None
    return Page(frame.name, "topics/producers.html", {"frame": frame, "asked": call.query, "found": found})


PAGES: dict[str, PageHandler] = {
    "GET /topics/{topic}": topic_page,
    "GET /topics/{topic}/partitions": partitions_page,
    "GET /topics/{topic}/settings": settings_page,
    "GET /topics/{topic}/groups": groups_page,
    "GET /topics/{topic}/producers": producers_page,
}
