"""BrokerService: topics, producing and consuming, at any broker.

Each call is turned into one question to the broker, or handed to the broker that it belongs to (see `routes`). Nothing
is decided here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from tidemill.broker.broker import BrokerNode
from tidemill.broker.topics import UNSET
from tidemill.cluster.core.image import PartitionInfo, Topic
from tidemill.model.errors import InvalidRecord, InvalidRequest, InvalidTimestamp, TidemillError, by_name
from tidemill.model.topics import refuse_internal
from tidemill.records.build import NewRecord, build_batch
from tidemill.servers.grpc import group_members
from tidemill.servers.grpc.error_status import answered, meaning
from tidemill.servers.grpc.partition_reads import ANSWER_BYTES_MAX, ReadPosition, read_partitions
from tidemill.servers.grpc.routing import Routes, was_forwarded
from tidemill.wire.grpc import broker_pb2 as wire
from tidemill.wire.grpc import broker_pb2_grpc as generated

PRODUCE_RECORDS_MAX = 10_000
BATCH_HEADERS_MAX = 50_000
"""Headers of all records of one produced batch: they are encoded on the event loop."""
CONSUME_RECORDS = 100
CONSUME_RECORDS_MAX = 10_000
PRODUCE_TIMEOUT_S = 30.0
FORWARD_SLACK_S = 5.0
LOOK_S = 0.25
"""How long a leader has to say what it has, when another one may have something, too."""
VERSION_NEWEST = 13
UNKNOWN_OFFSET = -1
PRODUCER_EPOCH_MAX = 2**15 - 1
T = TypeVar("T")
ACKS = {wire.ACKS_ALL: -1, wire.ACKS_LEADER: 1}


class BrokerService(generated.BrokerServiceServicer):
    """The calls of the schema."""

    def __init__(self, broker: BrokerNode, routes: Routes) -> None:
        self._broker = broker
        self._routes = routes

    # -- topics --------------------------------------------------------------------------------------------------------

    async def CreateTopic(self, request: wire.CreateTopicRequest, context: Any) -> wire.TopicInfo:  # noqa: N802
        """Create a topic; it can be written to when this returns."""

        async def create() -> wire.TopicInfo:
            return _topic(
                await self._broker.create_topic(
                    request.name,
                    partitions=request.partitions or UNSET,
                    replication_factor=request.replication_factor or UNSET,
                    overrides=dict(request.settings),
                )
            )

        return await answered(context, create)

    async def DeleteTopic(self, request: wire.DeleteTopicRequest, context: Any) -> wire.DeleteTopicReply:  # noqa: N802
        """Delete a topic with its records."""
        await answered(context, lambda: self._broker.delete_topic(request.name))
        return wire.DeleteTopicReply()

    async def ListTopics(self, _: wire.ListTopicsRequest, __: Any) -> wire.ListTopicsReply:  # noqa: N802
        """Every topic that is not the broker's own."""
        return wire.ListTopicsReply(topics=[_topic(topic) for topic in self._topics(())])

    async def GetMetadata(self, request: wire.GetMetadataRequest, _: Any) -> wire.GetMetadataReply:  # noqa: N802
        """Who leads what, and where they are."""
        brokers = [
            wire.BrokerInfo(node_id=peer.node_id, address=peer.address, rack=peer.rack)
            for peer in self._routes.brokers()
        ]
        topics = [_topic(topic) for topic in self._topics(request.topics)]
        return wire.GetMetadataReply(cluster_id=self._broker.cluster_id, brokers=brokers, topics=topics)

    async def ChooseBrokers(self, request: wire.ChooseBrokersRequest, _: Any) -> wire.ChooseBrokersReply:  # noqa: N802
        """Which brokers a client should talk to, best first."""
        found = self._routes.choices(topic=request.topic, timeline=request.timeline)
        choices = [
            wire.Choice(
                broker=wire.BrokerInfo(**one.peer._asdict()),
                weight=one.weight,
                consumers=one.consumers,
                state=one.state,
            )
            for one in found
        ]
        return wire.ChooseBrokersReply(choices=choices, carries=self._broker.carries)

    def _topics(self, names: Sequence[str]) -> list[Topic]:
        if names:
            return [topic for name in dict.fromkeys(names) if (topic := self._broker.topic(name)) is not None]
        return sorted((topic for topic in self._broker.topics() if not topic.internal), key=lambda topic: topic.name)

    # -- producing -----------------------------------------------------------------------------------------------------

    async def InitProducer(self, _: wire.InitProducerRequest, context: Any) -> wire.InitProducerReply:  # noqa: N802
        """An id that no producer has had."""

        async def init() -> wire.InitProducerReply:
            return wire.InitProducerReply(producer_id=await self._broker.new_producer_id(), producer_epoch=0)

        return await answered(context, init)

    async def Produce(self, request: wire.ProduceRequest, context: Any) -> wire.ProduceReply:  # noqa: N802
        """Store batches; each partition has an outcome of its own."""
        return await answered(context, lambda: self._produce(request, forwarded=was_forwarded(context)))

    async def _produce(self, request: wire.ProduceRequest, *, forwarded: bool) -> wire.ProduceReply:
        refuse_internal(request.topic)
        meaning("acks", request.acks, ACKS)
        records = sum(len(batch.records) for batch in request.batches)
        if records > PRODUCE_RECORDS_MAX:
            raise InvalidRequest(f"{records} records in one call; at most {PRODUCE_RECORDS_MAX}")
        outcomes = [self._store(request.topic, request.acks, batch, forwarded=forwarded) for batch in request.batches]
        return wire.ProduceReply(outcomes=await asyncio.gather(*outcomes))

    async def _store(self, topic: str, acks: wire.Acks, batch: wire.Batch, *, forwarded: bool) -> wire.Produced:
        try:
            leader = self._routes.leader_of(topic, batch.partition, forwarded=forwarded)
            if leader is None:
                return await self._append(topic, acks, batch)
            request = wire.ProduceRequest(topic=topic, acks=acks, batches=[batch])
            reply: wire.ProduceReply = await self._routes.forward(leader, "Produce", request)
        except TidemillError as error:
            return wire.Produced(
                partition=batch.partition, base_offset=UNKNOWN_OFFSET, error=type(error).__name__, reason=str(error)
            )
        outcome: wire.Produced = reply.outcomes[0]
        return outcome

    async def _append(self, topic: str, acks: wire.Acks, batch: wire.Batch) -> wire.Produced:
        broker = self._broker
        partition = broker.partition(topic, batch.partition)
        kafka_acks = meaning("acks", acks, ACKS)
        closed = _closed(batch, self._broker.clock_ms())
        if partition.settings.tidemill_schedule_enable and broker.scheduler is not None:
            appended = await broker.scheduler.append(
                partition, closed, acks=kafka_acks, version=VERSION_NEWEST, timeout_s=PRODUCE_TIMEOUT_S
            )
        else:
            appended = await partition.append(closed, acks=kafka_acks, timeout_s=PRODUCE_TIMEOUT_S)
        broker.telemetry.topic(topic).produced(len(closed), len(batch.records))
        return wire.Produced(
            partition=batch.partition,
            base_offset=appended.base_offset,
            append_time_ms=max(0, appended.log_append_time_ms),
        )

    # -- consuming -----------------------------------------------------------------------------------------------------

    async def Subscribe(self, request: wire.SubscribeRequest, context: Any) -> wire.SubscribeReply:  # noqa: N802
        """Join a group."""
        reply = await self._coordinated(
            "Subscribe", request, context, lambda: group_members.subscribe(self._broker, request, _host(context))
        )
        self._note_reader(request.topics, reply.member_id, context)
        return reply

    async def Poll(self, request: wire.PollRequest, context: Any) -> wire.PollReply:  # noqa: N802
        """A sign of life, and records."""
        self._note_reader(request.topics, request.member_id, context)
        return await self._coordinated(
            "Poll", request, context, lambda: self._poll(request, _host(context)), wait_ms=request.max_wait_ms
        )

    async def _poll(self, request: wire.PollRequest, host: str) -> wire.PollReply:
        reply = await group_members.heartbeat(self._broker, request, host)
        if not reply.rebalance and request.max_records > 0:
            wanted = list(
                dict.fromkeys(ReadPosition(one.topic, one.partition, one.offset) for one in request.positions)
            )
            reply.partitions.extend(await self._read(wanted, request.max_records, request.max_wait_ms))
        return reply

    async def Commit(self, request: wire.CommitRequest, context: Any) -> wire.CommitReply:  # noqa: N802
        """Say how far a member has come."""
        return await self._coordinated("Commit", request, context, lambda: group_members.commit(self._broker, request))

    async def Unsubscribe(self, request: wire.UnsubscribeRequest, context: Any) -> wire.UnsubscribeReply:  # noqa: N802
        """Leave a group."""
        return await self._coordinated(
            "Unsubscribe", request, context, lambda: group_members.unsubscribe(self._broker, request)
        )

    def _note_reader(self, topics: Iterable[str], member_id: str, context: Any) -> None:
        """Count a member at the broker that it called, for topics that there are."""
        if not was_forwarded(context):
            self._broker.readers.note((name for name in topics if self._broker.topic(name) is not None), member_id)

    async def _coordinated(
        self, method: str, request: Any, context: Any, here: Callable[[], Awaitable[T]], wait_ms: int = 0
    ) -> T:
        """The answer of the group's coordinator: `here`, or another broker's."""

        async def answer() -> T:
            where = await self._routes.coordinator_of(request.group, forwarded=was_forwarded(context))
            if where is None:
                return await here()
            reply: T = await self._routes.forward(where, method, request, wait_ms / 1_000 + FORWARD_SLACK_S)
            return reply

        return await answered(context, answer)

    async def Consume(self, request: wire.ConsumeRequest, context: Any) -> wire.ConsumeReply:  # noqa: N802
        """Read one partition."""
        return await answered(context, lambda: self._consume(request, forwarded=was_forwarded(context)))

    async def _consume(self, request: wire.ConsumeRequest, *, forwarded: bool) -> wire.ConsumeReply:
        leader = self._routes.leader_of(request.topic, request.partition, forwarded=forwarded)
        if leader is not None:
            timeout_s = request.max_wait_ms / 1_000 + FORWARD_SLACK_S
            reply: wire.ConsumeReply = await self._routes.forward(leader, "Consume", request, timeout_s)
            return reply
        partition = self._broker.partition(request.topic, request.partition)
        found = await read_partitions(
            self._broker,
            [ReadPosition(request.topic, request.partition, request.offset)],
            max_records=_bounded(request.max_records),
            max_wait_ms=request.max_wait_ms,
            committed=not request.uncommitted,
        )
        if found and found[0].error:
            raise by_name(found[0].error)(found[0].reason)
        return wire.ConsumeReply(
            records=found[0].records if found else (),
            next_offset=found[0].next_offset if found else request.offset,
            high_watermark=partition.high_watermark,
            log_start_offset=partition.log_start_offset,
        )

    async def _read(
        self, wanted: Sequence[ReadPosition], max_records: int, max_wait_ms: int
    ) -> list[wire.PartitionRecords]:
        """News of partitions, wherever their leaders are.

        All are asked first for what they have, so that the quickest cannot keep the others from their turn; and only
        when nobody has any is it waited for, and who has some first does not wait for the others.
        """
        here: list[ReadPosition] = []
        elsewhere: list[tuple[ReadPosition, str]] = []
        refused: list[wire.PartitionRecords] = []
        for one in wanted:
            try:
                leader = self._routes.leader_of(one.topic, one.partition, forwarded=False)
            except TidemillError as error:
                refused.append(_refused(one, error))
                continue
            here.append(one) if leader is None else elsewhere.append((one, leader))
        most = _bounded(max_records)

        def ask(wait_ms: int) -> list[Coroutine[Any, Any, list[wire.PartitionRecords]]]:
            calls = [self._read_there(one, leader, most, wait_ms) for one, leader in elsewhere]
            return (
                [*calls, read_partitions(self._broker, here, max_records=most, max_wait_ms=wait_ms)] if here else calls
            )

        if refused or elsewhere:
            found = refused + await _all_news(ask(0))
            if found or not elsewhere:
                return found
        return await _first_news(ask(max_wait_ms))

    async def _read_there(
        self, wanted: ReadPosition, leader: str, max_records: int, max_wait_ms: int
    ) -> list[wire.PartitionRecords]:
        request = wire.ConsumeRequest(**wanted._asdict(), max_records=max_records, max_wait_ms=max_wait_ms)
        try:
            reply = await self._routes.forward(leader, "Consume", request, max_wait_ms / 1_000 + FORWARD_SLACK_S)
        except TidemillError as error:
            return [_refused(wanted, error)]
        if not reply.records and reply.next_offset == wanted.offset:
            return []
        return [
            wire.PartitionRecords(
                topic=wanted.topic,
                partition=wanted.partition,
                records=reply.records,
                next_offset=reply.next_offset,
                high_watermark=reply.high_watermark,
            )
        ]

    # -- replicas ------------------------------------------------------------------------------------------------------

    async def Replicate(self, request: wire.ReplicateRequest, context: Any) -> wire.ReplicateReply:  # noqa: N802
        """How far the replicas of partitions are, as their leaders know it."""

        async def status() -> wire.ReplicateReply:
            forwarded = was_forwarded(context)
            topics = self._topics(request.topics)
            found = [self._status(topic, info) for topic in topics for info in topic.partitions]
            if not forwarded:
                await self._ask_leaders(found)
            return wire.ReplicateReply(partitions=found)

        return await answered(context, status)

    def _status(self, topic: Topic, info: PartitionInfo) -> wire.ReplicaStatus:
        status = wire.ReplicaStatus(topic=topic.name, partition=_partition(info))
        status.log_start_offset = status.high_watermark = status.log_end_offset = UNKNOWN_OFFSET
        carried = self._broker.partitions.find(topic.name, info.index)
        if carried is not None and info.leader == self._broker.node_id:
            status.log_start_offset = carried.log_start_offset
            status.high_watermark = carried.high_watermark
            status.log_end_offset = carried.log_end_offset
        return status

    async def _ask_leaders(self, found: Sequence[wire.ReplicaStatus]) -> None:
        """Fill in what other brokers lead; one that does not answer leaves its partitions unknown."""
        peers = {peer.node_id: peer.address for peer in self._routes.brokers()}
        elsewhere = {one.partition.leader for one in found} - {self._broker.node_id}
        request = wire.ReplicateRequest(topics=sorted({one.topic for one in found}))
        asked = [self._routes.forward(peers[node], "Replicate", request) for node in elsewhere if peers.get(node)]
        for reply in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(reply, BaseException):
                continue
            known = {(one.topic, one.partition.partition): one for one in reply.partitions if one.log_end_offset >= 0}
            for one in found:
                told = known.get((one.topic, one.partition.partition))
                if told is not None:
                    one.CopyFrom(told)


async def _all_news(calls: Iterable[Any]) -> list[wire.PartitionRecords]:
    """What the calls found that did not take long, as far as it fits into an answer; the others are given up."""
    asked = [asyncio.ensure_future(call) for call in calls]
    if not asked:
        return []
    try:
        await asyncio.wait(asked, timeout=LOOK_S)
    finally:
        for call in asked:
            call.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    found: list[wire.PartitionRecords] = []
    left = ANSWER_BYTES_MAX
    for one in (one for call in asked if not call.cancelled() for one in call.result()):
        left -= one.ByteSize()
        if left >= 0 or not found:
            found.append(one)
    return found


async def _first_news(calls: Iterable[Any]) -> list[wire.PartitionRecords]:
    """What the first call with news found, and all that have ended with it; the others are given up."""
    waiting = {asyncio.ensure_future(call) for call in calls}
    found: list[wire.PartitionRecords] = []
    try:
        while waiting and not found:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            found = [one for call in done for one in call.result()]
    finally:
        for call in waiting:
            call.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    return found


def _closed(batch: wire.Batch, now_ms: int) -> bytearray:
    """The batch as it is stored."""
    headers = sum(len(record.headers) for record in batch.records)
    if headers > BATCH_HEADERS_MAX:
        raise InvalidRecord(f"{headers} headers in one batch, allowed are {BATCH_HEADERS_MAX}; send smaller batches")
    records = [
        NewRecord(
            record.key if record.HasField("key") else None,
            record.value if record.HasField("value") else None,
            tuple((header.key, header.value if header.HasField("value") else None) for header in record.headers),
            record.timestamp_ms or now_ms,
        )
        for record in batch.records
    ]
    if any(record.timestamp < 0 for record in records):
        raise InvalidTimestamp("a record's time is before 1970")
    if not batch.HasField("sequence"):
        return build_batch(records)
    sequence = batch.sequence
    if not 0 <= sequence.producer_epoch <= PRODUCER_EPOCH_MAX or sequence.producer_id < 0 or sequence.first < 0:
        raise InvalidRequest(f"{sequence.producer_id}, {sequence.producer_epoch}, {sequence.first} are no sequence")
    return build_batch(
        records,
        producer_id=sequence.producer_id,
        producer_epoch=sequence.producer_epoch,
        base_sequence=sequence.first,
    )


def _bounded(max_records: int) -> int:
    return min(max_records or CONSUME_RECORDS, CONSUME_RECORDS_MAX)


def _refused(wanted: ReadPosition, error: TidemillError) -> wire.PartitionRecords:
    return wire.PartitionRecords(
        topic=wanted.topic,
        partition=wanted.partition,
        next_offset=wanted.offset,
        error=type(error).__name__,
        reason=str(error),
    )


def _topic(topic: Topic) -> wire.TopicInfo:
    return wire.TopicInfo(
        name=topic.name, partitions=[_partition(info) for info in topic.partitions], settings=topic.overrides
    )


def _partition(info: PartitionInfo) -> wire.PartitionInfo:
    return wire.PartitionInfo(
        partition=info.index,
        leader=info.leader,
        leader_epoch=info.leader_epoch,
        replicas=info.replicas,
        in_sync=info.isr,
    )


def _host(context: Any) -> str:
    """The client's address as groups show it."""
    kind, _, address = str(context.peer()).partition(":")
    return f"/{address.rpartition(':')[0]}" if kind.startswith("ipv") else f"/{kind}"
