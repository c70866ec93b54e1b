"""Topics in the JSON API."""

from collections.abc import Iterable, Sequence
from typing import Any

from tidemill.broker.broker import BrokerNode
from tidemill.cluster.core.image import Topic
from tidemill.security.client_rights import ClientRights
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext, ApiHandler
from tidemill.servers.http.api.broker_parts import PartKind
from tidemill.servers.http.api.paging import rows_of
from tidemill.servers.http.broker_summary import visible_topics
from tidemill.wire.http.topics import TopicPage, TopicQuery, TopicRow, TopicSizes, TopicSizesQuery

Sizes = dict[str, tuple[int, int]]


async def list_topics(context: ApiContext, call: ApiCall[TopicQuery, None]) -> TopicPage:
    """A page of the topics that the client may describe."""
    query = call.query
    topics = [
        each
        for each in visible_topics(context.broker, call.rights)
        if (query.internal or not each.internal) and query.search in each.name
    ]
    by_size = query.sort in {"records", "bytes"}
    shown = topics if by_size else rows_of(topics, query, _sort_key(query.sort))
    asked = TopicSizesQuery(topics=[each.name for each in shown])
    gathered = await context.parts.gather(TOPIC_SIZES, call.rights, asked)
    sizes = _sum(each.sizes for each in gathered.parts.values())
    if by_size:
        column = ("records", "bytes").index(query.sort)
        shown = rows_of(topics, query, lambda topic: sizes.get(topic.name, (0, 0))[column])
    is_partial = bool(gathered.unreachable)
    return TopicPage(
        topics=[_row(each, None if is_partial else sizes.get(each.name, (0, 0))) for each in shown],
        total=len(topics),
        unreachable_brokers=gathered.unreachable,
    )


def _sort_key(column: str) -> Any:
    return (lambda topic: len(topic.partitions)) if column == "partitions" else (lambda topic: topic.name)


def _row(topic: Topic, sizes: tuple[int, int] | None) -> TopicRow:
    return TopicRow(
        topic=topic.name,
        internal=topic.internal,
        partitions=len(topic.partitions),
        replicas=max(len(each.replicas) for each in topic.partitions),
        records=None if sizes is None else sizes[0],
        bytes=None if sizes is None else sizes[1],
        under_replicated=sum(len(each.isr) < len(each.replicas) for each in topic.partitions),
    )


def _sum(parts: Iterable[Sizes]) -> Sizes:
    sizes: Sizes = {}
    for part in parts:
        for topic, (records, size) in part.items():
            known = sizes.get(topic, (0, 0))
            sizes[topic] = (known[0] + records, known[1] + size)
    return sizes


async def _sizes_here(broker: BrokerNode, rights: ClientRights, asked: TopicSizesQuery) -> TopicSizes:
    topics = {each.name: each for each in visible_topics(broker, rights)}
    return TopicSizes(sizes={name: _led_here(broker, topics[name]) for name in asked.topics if name in topics})


def _led_here(broker: BrokerNode, topic: Topic) -> tuple[int, int]:
    found = [broker.partitions.find(topic.name, each.index) for each in topic.partitions]
    led = [each for each in found if each is not None and each.leads]
    return sum(each.high_watermark - each.log_start_offset for each in led), sum(each.size_bytes for each in led)


TOPIC_SIZES = PartKind("topic-sizes", TopicSizesQuery, TopicSizes, _sizes_here)
HANDLERS: dict[str, ApiHandler] = {"GET /api/v1/topics": list_topics}
PARTS: Sequence[PartKind[Any, Any]] = (TOPIC_SIZES,)
