"""The list of topics: names from the image of the answering broker, sizes from the leaders, rates from all brokers."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tidemill.broker.broker import BrokerNode
from tidemill.broker.loop_turns import LoopTurns
from tidemill.cluster.core.image import NO_BROKER, Topic
from tidemill.security.client_rights import ClientRights
from tidemill.security.core.resources import Operation, ResourceType
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext
from tidemill.servers.http.api.broker_parts import PartKind
from tidemill.servers.http.api.cluster_status import counts_of
from tidemill.servers.http.api.paging import rows_of
from tidemill.servers.http.api.topic_history import BYTES_IN, BYTES_OUT, RECORDS_IN, topic_history
from tidemill.servers.http.broker_summary import visible_topics
from tidemill.servers.http.core.topic_health import health_of_topic
from tidemill.wire.http.topics import TopicPage, TopicQuery, TopicRow, TopicSizes, TopicSizesQuery

BY_SIZE = ("records", "bytes")
BY_RATE = {"records_in": RECORDS_IN, "bytes_in": BYTES_IN, "bytes_out": BYTES_OUT}
NO_SIZE = (0, 0)

Rates = Mapping[str, Mapping[str, float | None]]
"""By series and topic."""


class KnownSizes(NamedTuple):
    """Records and bytes of topics, as far as the brokers have answered."""

    by_topic: Mapping[str, tuple[int, int]]
    in_tables: frozenset[str]
    unreachable: Sequence[int]


async def list_topics(context: ApiContext, call: ApiCall[TopicQuery, None]) -> TopicPage:
    """A page of the topics that the client may describe."""
    query, rights = call.query, call.rights
    wanted = query.search.casefold()
    matching = [
        each
        for each in visible_topics(context.broker, rights)
        if (query.internal or not each.internal) and wanted in each.name.casefold()
    ]
    with_problems = counts_of(context.broker.view.image).topics_with_problems
    troubled = [each for each in matching if each.name in with_problems]
    listed = troubled if query.problems else matching
    shown = await _page_of(context, rights, listed, query)
    names = [each.name for each in shown]
    sizes, rates = await asyncio.gather(_sizes(context, rights, names), _rates(context, rights, names))
    return TopicPage(
        topics=[_row(each, sizes, rates, rights) for each in shown],
        total=len(listed),
        problems=len(troubled),
        unreachable_brokers=list(sizes.unreachable),
    )


async def _page_of(
    context: ApiContext, rights: ClientRights, listed: Sequence[Topic], query: TopicQuery
) -> list[Topic]:
    """The topics of one page, in its order. Topics that are equal there are in the order of their names."""
    if query.sort in BY_SIZE:
        sizes = (await _sizes(context, rights, [each.name for each in listed])).by_topic
        column = BY_SIZE.index(query.sort)
        return rows_of(listed, query, lambda topic: sizes.get(topic.name, NO_SIZE)[column])
    if query.sort in BY_RATE:
        rates = (await _rates(context, rights, None)).get(BY_RATE[query.sort], {})
        return rows_of(listed, query, lambda topic: rates.get(topic.name) or 0.0)
    return rows_of(listed, query, _sort_key(query.sort, rights))


def _sort_key(column: str, rights: ClientRights) -> Callable[[Topic], Any]:
    match column:
        case "partitions":
            return lambda topic: len(topic.partitions)
        case "replicas":
            return replicas_of
        case "under_replicated":
            return lambda topic: health_of_topic(topic).under_replicated
        case "cleanup_policy":
            return lambda topic: _cleanup_policy(topic, rights) or ""
    return lambda topic: topic.name


def replicas_of(topic: Topic) -> int:
    """The replicas of each partition; the most, while a partition moves."""
    return max(len(each.replicas) for each in topic.partitions)


def _cleanup_policy(topic: Topic, rights: ClientRights) -> str | None:
    if not rights.allows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name):
        return None
    return ",".join(topic.settings.cleanup_policy)


def _row(topic: Topic, sizes: KnownSizes, rates: Rates, rights: ClientRights) -> TopicRow:
    records, size = sizes.by_topic.get(topic.name, NO_SIZE)
    health = health_of_topic(topic)
    silent = {NO_BROKER, *sizes.unreachable}
    is_known = not any(each.leader in silent for each in topic.partitions)
    return TopicRow(
        topic=topic.name,
        internal=topic.internal,
        partitions=len(topic.partitions),
        replicas=replicas_of(topic),
        records=records if is_known else None,
        bytes=size if is_known else None,
        storage=None if not is_known else "clickhouse" if topic.name in sizes.in_tables else "segments",
        records_in=rates.get(RECORDS_IN, {}).get(topic.name),
        bytes_in=rates.get(BYTES_IN, {}).get(topic.name),
        bytes_out=rates.get(BYTES_OUT, {}).get(topic.name),
        cleanup_policy=_cleanup_policy(topic, rights),
        without_leader=health.without_leader,
        under_replicated=health.under_replicated,
        under_min_isr=health.under_min_isr,
    )


async def _rates(context: ApiContext, rights: ClientRights, topics: Sequence[str] | None) -> Rates:
    """The latest rates of some topics, or of all that have traffic."""
    rates: dict[str, dict[str, float | None]] = {}
    for series in (await topic_history(context, rights, topics, slots=1)).series:
        rates.setdefault(series.name, {})[series.key] = series.values[-1]
    return rates


async def _sizes(context: ApiContext, rights: ClientRights, topics: list[str]) -> KnownSizes:
    gathered = await context.parts.gather(TOPIC_SIZES, rights, TopicSizesQuery(topics=topics))
    sizes: dict[str, tuple[int, int]] = {}
    for part in gathered.parts.values():
        for topic, (records, size) in part.sizes.items():
            known = sizes.get(topic, NO_SIZE)
            sizes[topic] = (known[0] + records, known[1] + size)
    in_tables = frozenset(topic for part in gathered.parts.values() for topic in part.in_tables)
    return KnownSizes(sizes, in_tables, gathered.unreachable)


async def _sizes_here(broker: BrokerNode, rights: ClientRights, asked: TopicSizesQuery) -> TopicSizes:
    sizes: dict[str, tuple[int, int]] = {}
    async for name in LoopTurns().over(asked.topics):
        topic = broker.view.topic(name)
        if topic is not None and rights.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
            sizes[name] = _led_here(broker, topic)
    return TopicSizes(sizes=sizes, in_tables=[name for name in sizes if broker.partitions.store.is_in_tables(name)])


def _led_here(broker: BrokerNode, topic: Topic) -> tuple[int, int]:
    found = [broker.partitions.find(topic.name, each.index) for each in topic.partitions]
    led = [each for each in found if each is not None and each.leads]
    return sum(each.high_watermark - each.log_start_offset for each in led), sum(each.size_bytes for each in led)


TOPIC_SIZES = PartKind("topic-sizes", TopicSizesQuery, TopicSizes, _sizes_here)
