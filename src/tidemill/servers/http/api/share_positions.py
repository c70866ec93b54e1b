"""Where share groups are: each broker knows the positions in the partitions that it leads or whose state it keeps."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from msgspec.structs import replace

from tidemill.broker.broker import BrokerNode
from tidemill.model.topics import TopicPartition
from tidemill.security.client_rights import ClientRights
from tidemill.security.core.resources import CLUSTER_NAME, Operation, ResourceType
from tidemill.servers.http.api.api_context import ApiContext
from tidemill.servers.http.api.broker_parts import PartKind
from tidemill.servers.http.api.group_parts import UNKNOWN_LAG, describes_topics, share_lags_here
from tidemill.servers.http.api.paging import rows_of
from tidemill.shares.core.share_position import SharePosition
from tidemill.wire.http.groups import (
    GroupDescription,
    GroupDescriptionQuery,
    ShareLagsPart,
    ShareLagsQuestion,
    SharePartitionRow,
    SharePositionsPart,
    SharePositionsQuestion,
)

SHARE = "share"


async def with_positions(
    context: ApiContext, rights: ClientRights, found: GroupDescription, asked: GroupDescriptionQuery
) -> GroupDescription:
    """The description of a share group with the positions that the brokers know, and a page of its partitions."""
    question = SharePositionsQuestion(group=found.group)
    parts = (await context.parts.gather(SHARE_POSITIONS, rights, question)).parts.values()
    known: dict[TopicPartition, SharePartitionRow] = {}
    for row in (row for part in parts for row in part.rows):
        place = TopicPartition(row.topic, row.partition)
        if place not in known or row.acquired is not None:  # the leader knows most
            known[place] = row
    rows = [_merged(row, known.get(TopicPartition(row.topic, row.partition))) for row in found.shared]
    chosen = [row for row in rows if asked.search in row.topic]
    lags = [row.lag for row in rows if row.lag is not None]
    return replace(
        found,
        lag=sum(lags) if lags else None,
        unknown_partitions=len(rows) - len(lags),
        shared=rows_of(chosen, asked, _sort_key(asked.sort)),
        partition_count=len(chosen),
    )


async def share_lags(
    context: ApiContext, rights: ClientRights, groups: Collection[str], topic: str = ""
) -> Mapping[str, int]:
    """The lag of share groups in all topics that the client may describe, or in one; without those not known."""
    if not groups:
        return {}
    question = ShareLagsQuestion(groups=sorted(groups), topic=topic)
    found: defaultdict[str, int] = defaultdict(int)
    for part in (await context.parts.gather(SHARE_LAGS, rights, question)).parts.values():
        for group, lag in part.lags.items():
            found[group] += lag
    return found


def _merged(row: SharePartitionRow, known: SharePartitionRow | None) -> SharePartitionRow:
    return row if known is None else replace(known, members=row.members)


def _sort_key(column: str) -> Any:
    def key(row: SharePartitionRow) -> Any:
        place = row.topic, row.partition
        if column not in ("end", "lag"):
            return place
        value = row.end if column == "end" else row.lag
        return UNKNOWN_LAG if value is None else value, place

    return key


async def _positions_here(
    broker: BrokerNode, rights: ClientRights, asked: SharePositionsQuestion
) -> SharePositionsPart:
    rights.check(Operation.DESCRIBE, ResourceType.GROUP, asked.group)
    describes = describes_topics(rights)
    found = await broker.share_positions.all(asked.group)
    return SharePositionsPart(rows=[_row(each) for each in found if describes(each.topic)])


def _row(position: SharePosition) -> SharePartitionRow:
    flight = position.in_flight
    return SharePartitionRow(
        topic=position.topic,
        partition=position.partition,
        start=position.start_offset,
        end=position.end_offset,
        lag=position.lag,
        acquired=None if flight is None else flight.acquired,
        available=None if flight is None else flight.available,
        waiting=None if flight is None else flight.waiting,
        oldest_lock_s=None if flight is None else flight.oldest_lock_ms / 1_000,
    )


async def _lags_here(broker: BrokerNode, rights: ClientRights, asked: ShareLagsQuestion) -> ShareLagsPart:
    sees_all = rights.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    visible = {each for each in asked.groups if sees_all or rights.allows(Operation.DESCRIBE, ResourceType.GROUP, each)}
    lags = await share_lags_here(broker, describes_topics(rights), asked.topic)
    return ShareLagsPart(lags={group: lag for group, lag in lags.items() if group in visible})


SHARE_POSITIONS = PartKind("share-positions", SharePositionsQuestion, SharePositionsPart, _positions_here)
SHARE_LAGS = PartKind("share-lags", ShareLagsQuestion, ShareLagsPart, _lags_here)
