"""The cluster in the JSON API: brokers, moving partitions, rebalance, elections, settings, clocks."""

import asyncio
from collections.abc import Sequence
from typing import Any

from tidemill.broker.broker import BrokerNode
from tidemill.client.kafka.client import KafkaClient
from tidemill.cluster.core.image import PartitionInfo, Topic
from tidemill.cluster.core.rebalance_plan import CarriedPartition, PartitionPlan, plan_rebalance
from tidemill.model.topics import TopicPartition
from tidemill.security.client_rights import ClientRights
from tidemill.security.core.resources import CLUSTER_NAME, Operation, ResourceType
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext, ApiHandler
from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.servers.http.api.broker_parts import REUSED_S, PartKind
from tidemill.servers.http.api.cluster_status import read_status
from tidemill.servers.http.core.rebalance_outcome import outcome_of
from tidemill.wire.http.cluster import (
    MOVES_MAX,
    PROBLEMS_MAX,
    AcceptedClock,
    BrokerSettingList,
    BrokerSettingRow,
    BrokerSettingsQuery,
    ClusterStatus,
    ElectionOutcome,
    MovingPart,
    MovingPartition,
    MovingPartitions,
    MovingReplica,
    NoQuestion,
    RebalanceOutcome,
)

BROKER_DIGITS_MAX = 10


async def describe_cluster(context: ApiContext, call: ApiCall[None, None]) -> ClusterStatus:
    """`GET /api/v1/cluster`."""
    return await read_status(context, call.rights)


async def list_moving(context: ApiContext, call: ApiCall[None, None]) -> MovingPartitions:
    """`GET /api/v1/cluster/reassignments`. The progress of each comes from its leader."""
    gathered = await context.parts.gather(MOVING, call.rights, NoQuestion())
    known = {(each.topic, each.partition): each for part in gathered.parts.values() for each in part.partitions}
    moving = sorted(context.broker.reassignments.under_way(), key=lambda each: (each[0].name, each[1].index))
    rows = [_moving_row(topic, info, known.get((topic.name, info.index))) for topic, info in moving[:MOVES_MAX]]
    return MovingPartitions(partitions=rows, total=len(moving), unreachable_brokers=gathered.unreachable)


async def preview_rebalance(context: ApiContext, _: ApiCall[None, None]) -> RebalanceOutcome:
    """`GET /api/v1/cluster/rebalance`: what a rebalance would change."""
    return outcome_of(await planned(context), is_preview=True)


async def rebalance(context: ApiContext, call: ApiCall[None, None]) -> RebalanceOutcome:
    """`POST /api/v1/cluster/rebalance`."""
    plans = await planned(context)
    problems = await context.as_client(call.rights, lambda client: _carry_out(client, plans)) if plans else []
    return outcome_of(plans, problems, is_preview=False)


async def planned(context: ApiContext) -> list[PartitionPlan]:
    """The partitions that a rebalance changes now. A thread decides, because there can be many."""
    broker = context.broker
    image = broker.view.image
    carriers = {each.node_id: each.rack for each in image.brokers.values() if each.carries}
    if broker.carries:
        carriers.setdefault(broker.node_id, broker.membership.registration.rack)
    carried = {
        TopicPartition(topic.name, info.index): CarriedPartition(info.leader, info.replicas)
        for topic in image.by_name.values()
        for info in topic.partitions
    }
    return await asyncio.to_thread(plan_rebalance, carried, list(carriers), carriers)


def _carry_out(client: KafkaClient, plans: Sequence[PartitionPlan]) -> list[str]:
    """Start all moves, and elect the leaders of partitions that copy nothing. The others change their leader later."""
    moves = {each.partition: each.replicas for each in plans if each.moves}
    refused = {key: error for key, error in client.reassign(moves).items() if error} if moves else {}
    ready = [each.partition for each in plans if each.elects and not each.copies and each.partition not in refused]
    kept = {key: error for key, error in client.elect_preferred(ready).items() if error} if ready else {}
    return [f"{key} keeps its replicas: {error}" for key, error in refused.items()] + [
        f"{key} keeps its leader: {error}" for key, error in kept.items()
    ]


async def elect_preferred(context: ApiContext, call: ApiCall[None, None]) -> ElectionOutcome:
    """`POST /api/v1/cluster/elections`: the first replica of each partition leads again."""
    wanted = [TopicPartition(*each) for each in context.broker.reassignments.not_preferred()]

    def elect(client: KafkaClient) -> list[str]:
        return [f"{key}: {error}" for key, error in client.elect_preferred(wanted).items() if error]

    problems = await context.as_client(call.rights, elect) if wanted else []
    return ElectionOutcome(elected=len(wanted) - len(problems), problems=problems[:PROBLEMS_MAX])


async def forget_broker(context: ApiContext, call: ApiCall[None, None]) -> None:
    """`DELETE /api/v1/brokers/{broker}`."""
    number = broker_number(call)
    await context.as_client(call.rights, lambda client: client.forget_broker(number))


async def read_settings(context: ApiContext, call: ApiCall[BrokerSettingsQuery, None]) -> BrokerSettingList:
    """`GET /api/v1/brokers/{broker}/settings`."""
    return await context.parts.at(known_broker(context, call), SETTINGS, call.rights, call.query)


async def accept_clock(context: ApiContext, call: ApiCall[None, None]) -> AcceptedClock:
    """`POST /api/v1/brokers/{broker}/clock`: an operator confirms the wall clock of a broker."""
    return await context.parts.at(known_broker(context, call), ACCEPT_CLOCK, call.rights, NoQuestion())


def broker_number(call: ApiCall[Any, Any]) -> int:
    """The number of the broker in the path."""
    text = call.name("broker")
    if not (text.isascii() and text.isdigit() and len(text) <= BROKER_DIGITS_MAX):
        raise ApiProblem(404, f"{text[:60]!r} is not the number of a broker; see the brokers at /cluster")
    return int(text)


def known_broker(context: ApiContext, call: ApiCall[Any, Any]) -> int:
    """The number of a broker that runs."""
    number = broker_number(call)
    if number != context.broker.node_id and number not in context.broker.view.image.brokers:
        raise ApiProblem(404, f"broker {number} is not running; see the brokers at /cluster")
    return number


def _moving_row(topic: Topic, info: PartitionInfo, known: MovingReplica | None) -> MovingPartition:
    return MovingPartition(
        topic=topic.name,
        partition=info.index,
        replicas=list(info.replicas),
        adding=list(info.adding),
        removing=list(info.removing),
        bytes=None if known is None else known.bytes,
        lag=None if known is None else known.lag,
        progress=None if known is None else known.progress,
    )


async def _moving_here(broker: BrokerNode, rights: ClientRights, _: NoQuestion) -> MovingPart:
    """How far the new replicas of the partitions are that this broker leads."""
    rights.check(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    found = []
    for topic, info in broker.reassignments.under_way():
        partition = broker.partitions.find(topic.name, info.index)
        if partition is None or not partition.leads:
            continue
        lags = [partition.leader.lags[node].records for node in info.adding if node in partition.leader.lags]
        records = partition.high_watermark - partition.log_start_offset
        lag = max(lags, default=None)
        done = None if lag is None else 1.0 if records <= 0 else max(0.0, 1 - lag / records)
        found.append(
            MovingReplica(topic=topic.name, partition=info.index, bytes=partition.size_bytes, lag=lag, progress=done)
        )
    return MovingPart(partitions=found[:MOVES_MAX])


async def _settings_here(broker: BrokerNode, rights: ClientRights, asked: BrokerSettingsQuery) -> BrokerSettingList:
    rights.check(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
    rows = [
        BrokerSettingRow(
            name=each.setting.name,
            value=None if each.setting.sensitive else each.value,
            default=None if each.setting.sensitive else each.setting.default,
            is_default=not each.overridden,
            doc=each.setting.doc,
        )
        for each in broker.settings.listed()
        if asked.search in each.setting.name and (each.overridden or not asked.changed)
    ]
    return BrokerSettingList(broker=broker.node_id, settings=rows)


async def _accept_clock_here(broker: BrokerNode, rights: ClientRights, _: NoQuestion) -> AcceptedClock:
    """Accept the clock, with the right and the audit of the Kafka server for `tidemill.clock.accept`."""
    rights.check(Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME)
    ended = () if broker.clock is None else broker.clock.accept()
    rights.changed("configs_altered", resource=str(broker.node_id), settings=["tidemill.clock.accept"])
    return AcceptedClock(broker=broker.node_id, ended=list(ended))


MOVING = PartKind("moving-partitions", NoQuestion, MovingPart, _moving_here, REUSED_S)
SETTINGS = PartKind("broker-settings", BrokerSettingsQuery, BrokerSettingList, _settings_here, REUSED_S)
ACCEPT_CLOCK = PartKind("accept-clock", NoQuestion, AcceptedClock, _accept_clock_here)
HANDLERS: dict[str, ApiHandler] = {
    "GET /api/v1/cluster": describe_cluster,
    "GET /api/v1/cluster/reassignments": list_moving,
    "GET /api/v1/cluster/rebalance": preview_rebalance,
    "POST /api/v1/cluster/rebalance": rebalance,
    "POST /api/v1/cluster/elections": elect_preferred,
    "DELETE /api/v1/brokers/{broker}": forget_broker,
    "GET /api/v1/brokers/{broker}/settings": read_settings,
    "POST /api/v1/brokers/{broker}/clock": accept_clock,
}
PARTS: Sequence[PartKind[Any, Any]] = (MOVING, SETTINGS, ACCEPT_CLOCK)
