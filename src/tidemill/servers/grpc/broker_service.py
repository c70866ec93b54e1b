"""BrokerService: topics, producing and consuming, on any broker.

Each call becomes one call to the broker, or is forwarded to the responsible broker (see `routing`). The rights of the
client are checked here and again by that broker (`authorization_table`). This module makes no other decisions.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from tidemill.broker.broker import BrokerNode
from tidemill.broker.metrics import PRODUCE
from tidemill.broker.topics import UNSET
from tidemill.cluster.core.image import PartitionInfo, Topic
from tidemill.model.errors import (
    InvalidRecord,
    InvalidRequest,
    InvalidTimestamp,
    ThrottlingQuotaExceeded,
    TidemillError,
    by_name,
)
from tidemill.model.topics import refuse_internal
from tidemill.records.build import NewRecord, build_batch
from tidemill.security.core.failing_producers import OWN_ERRORS
from tidemill.security.core.resources import CLUSTER_NAME, Operation, ResourceType
from tidemill.servers.grpc import group_members
from tidemill.servers.grpc.broker_choice import ANY_TIMELINE, BrokerChoice, described, may_see_loads
from tidemill.servers.grpc.call import GrpcCall
from tidemill.servers.grpc.error_status import answered, meaning
from tidemill.servers.grpc.move_hints import MoveHints
from tidemill.servers.grpc.partition_reads import ANSWER_BYTES_MAX, ReadPosition, read_partitions
from tidemill.servers.grpc.producer_throttle import ProducerThrottle
from tidemill.servers.grpc.routing import Peer, Routes
from tidemill.timelines.core.timeline import resource_of
from tidemill.wire.grpc import broker_pb2 as wire
from tidemill.wire.grpc import broker_pb2_grpc as generated

PRODUCE_RECORDS_MAX = 10_000
BATCH_HEADERS_MAX = 50_000
"""The most headers of all records in one produced batch: they are encoded on the event loop."""
CONSUME_RECORDS = 100
CONSUME_RECORDS_MAX = 10_000
PRODUCE_TIMEOUT_S = 30.0
FORWARD_SLACK_S = 5.0
LOOK_S = 0.25
"""How long a leader may take to report its records, when another leader may have some, too."""
VERSION_NEWEST = 13
UNKNOWN_OFFSET = -1
PRODUCER_EPOCH_MAX = 2**15 - 1
T = TypeVar("T")
ACKS = {wire.ACKS_ALL: -1, wire.ACKS_LEADER: 1}


class BrokerService(generated.BrokerServiceServicer):
    """The calls of the schema."""

    def __init__(self, broker: BrokerNode, routes: Routes, hints: MoveHints) -> None:
        self._broker = broker
        self._hints = hints
        self._routes = routes
        self._throttle = ProducerThrottle(broker.security.failing_producers, ThrottlingQuotaExceeded)
        self._choice = BrokerChoice(broker, routes)

    # -- topics --------------------------------------------------------------------------------------------------------

    async def CreateTopic(self, request: wire.CreateTopicRequest, call: GrpcCall) -> wire.TopicInfo:  # noqa: N802
        """Create a topic. It can be written to when this returns."""

        async def create() -> wire.TopicInfo:
            call.rights.check_topic_or_cluster(Operation.CREATE, request.name)
            created = await self._broker.topics.create(
                request.name,
                partitions=request.partitions or UNSET,
                replication_factor=request.replication_factor or UNSET,
                overrides=dict(request.settings),
            )
            call.rights.changed("topic_created", topic=created.name, partitions=len(created.partitions))
            return _topic(created)

        return await answered(call, create)

    async def DeleteTopic(self, request: wire.DeleteTopicRequest, call: GrpcCall) -> wire.DeleteTopicReply:  # noqa: N802
        """Delete a topic and its records."""

        async def delete() -> None:
            call.rights.check_topic_or_cluster(Operation.DELETE, request.name)
            await self._broker.topics.delete(request.name)
            call.rights.changed("topic_deleted", topic=request.name)

        await answered(call, delete)
        return wire.DeleteTopicReply()

    async def ListTopics(self, _: wire.ListTopicsRequest, call: GrpcCall) -> wire.ListTopicsReply:  # noqa: N802
        """List every topic that is not internal."""
        return wire.ListTopicsReply(topics=[_topic(topic) for topic in self._topics((), call)])

    async def GetMetadata(self, request: wire.GetMetadataRequest, call: GrpcCall) -> wire.GetMetadataReply:  # noqa: N802
        """Return the leaders of partitions and their addresses."""

        async def metadata() -> wire.GetMetadataReply:
            reports = self._broker.loads.reports() if may_see_loads(call) else {}
            brokers = [described(peer, reports) for peer in self._routes.brokers()]
            topics = [_topic(topic) for topic in self._topics(request.topics, call)]
            return wire.GetMetadataReply(cluster_id=self._broker.cluster_id, brokers=brokers, topics=topics)

        return await answered(call, metadata)

    async def ChooseBrokers(self, request: wire.ChooseBrokersRequest, call: GrpcCall) -> wire.ChooseBrokersReply:  # noqa: N802
        """Return the brokers that a client should connect to, best first."""
        return await answered(call, lambda: self._choose(request, call))

    async def _choose(self, request: wire.ChooseBrokersRequest, call: GrpcCall) -> wire.ChooseBrokersReply:
        for name in (request.topic, resource_of(request.timeline)):
            if name not in ("", ANY_TIMELINE):
                call.rights.check_topic(Operation.DESCRIBE, name)
        return await self._choice.answer(request, call)

    def _topics(self, names: Sequence[str], call: GrpcCall) -> list[Topic]:
        """The topics with these names, or all that are not internal; without those that may not be described.

        If none of the names may be described, this is an error, whether the topics exist or not.
        """
        view, rights = self._broker.view, call.rights
        if not names:
            visible = sorted((topic for topic in view.topics() if not topic.internal), key=lambda topic: topic.name)
            return [each for each in visible if rights.allows(Operation.DESCRIBE, ResourceType.TOPIC, each.name)]
        allowed = [name for name in dict.fromkeys(names) if rights.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)]
        if not allowed:
            rights.check_topic(Operation.DESCRIBE, names[0])
        return [topic for name in allowed if (topic := view.topic(name)) is not None]

    # -- producing -----------------------------------------------------------------------------------------------------

    async def InitProducer(self, _: wire.InitProducerRequest, call: GrpcCall) -> wire.InitProducerReply:  # noqa: N802
        """Return an id that no producer has had."""

        async def init() -> wire.InitProducerReply:
            if not call.rights.allows_anywhere(Operation.WRITE, ResourceType.TOPIC):
                call.rights.check(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)
            return wire.InitProducerReply(producer_id=await self._broker.producer_ids.take(), producer_epoch=0)

        return await answered(call, init)

    async def Produce(self, request: wire.ProduceRequest, call: GrpcCall) -> wire.ProduceReply:  # noqa: N802
        """Store batches. Each partition has its own outcome."""
        return await answered(
            call, lambda: self._throttle.watched(call, lambda: self._produce(request, call), _all_failed)
        )

    async def _produce(self, request: wire.ProduceRequest, call: GrpcCall) -> wire.ProduceReply:
        call.rights.check_topic(Operation.WRITE, request.topic)
        refuse_internal(request.topic)
        meaning("acks", request.acks, ACKS)
        records = sum(len(batch.records) for batch in request.batches)
        if records > PRODUCE_RECORDS_MAX:
            raise InvalidRequest(
                f"the call has {records} records; the limit is {PRODUCE_RECORDS_MAX}; send smaller batches"
            )
        outcomes = [self._store(request.topic, request.acks, batch, call) for batch in request.batches]
        return wire.ProduceReply(outcomes=await asyncio.gather(*outcomes))

    async def _store(self, topic: str, acks: wire.Acks, batch: wire.Batch, call: GrpcCall) -> wire.Produced:
        leader = None
        try:
            leader = self._routes.leader_of(topic, batch.partition, forwarded=call.is_forwarded)
            if leader is None:
                return await self._append(topic, acks, batch)
            request = wire.ProduceRequest(topic=topic, acks=acks, batches=[batch])
            reply: wire.ProduceReply = await self._routes.forward(leader, "Produce", request, call)
        except TidemillError as error:
            if leader is None:  # otherwise the leader counts it
                self._broker.note_topic_error(topic, PRODUCE, type(error))
            return wire.Produced(
                partition=batch.partition, base_offset=UNKNOWN_OFFSET, error=type(error).__name__, reason=str(error)
            )
        outcome: wire.Produced = reply.outcomes[0]
        return outcome

    async def _append(self, topic: str, acks: wire.Acks, batch: wire.Batch) -> wire.Produced:
        broker = self._broker
        tracer = broker.tracer
        started_ns = 0 if tracer is None else tracer.now_ns()
        partition = broker.view.partition(topic, batch.partition)
        kafka_acks = meaning("acks", acks, ACKS)
        closed = _closed(batch, self._broker.clock_ms())
        if partition.settings.tidemill_schedule_enable and broker.scheduler is not None:
            appended = await broker.scheduler.append(
                partition, closed, acks=kafka_acks, version=VERSION_NEWEST, timeout_s=PRODUCE_TIMEOUT_S
            )
        else:
            appended = await partition.leader.append(closed, acks=kafka_acks, timeout_s=PRODUCE_TIMEOUT_S)
        broker.metrics.topic(topic).produced(len(closed), len(batch.records))
        if tracer is not None:
            tracer.records.produced(topic, batch.partition, closed, appended.base_offset, started_ns)
        return wire.Produced(
            partition=batch.partition,
            base_offset=appended.base_offset,
            append_time_ms=max(0, appended.log_append_time_ms),
        )

    # -- consuming -----------------------------------------------------------------------------------------------------

    async def Subscribe(self, request: wire.SubscribeRequest, call: GrpcCall) -> wire.SubscribeReply:  # noqa: N802
        """Join a group."""
        reply = await self._coordinated(
            "Subscribe", request, call, lambda: group_members.subscribe(self._broker, request, _host(call))
        )
        self._note_reader(request.topics, reply.member_id, call)
        return reply

    async def Poll(self, request: wire.PollRequest, call: GrpcCall) -> wire.PollReply:  # noqa: N802
        """Send a heartbeat and return records."""
        if call.rights.allows(Operation.READ, ResourceType.GROUP, request.group):
            self._note_reader(request.topics, request.member_id, call)  # before the wait for records
        reply = await self._coordinated(
            "Poll", request, call, lambda: self._poll(request, call), wait_ms=request.max_wait_ms
        )
        hint = self._hints.of_topic(request.topics[0], request.member_id, call) if request.topics else None
        if hint is not None:
            reply.move.MergeFrom(wire.MoveHint(addresses=[hint.address], reason=hint.reason, window_ms=hint.window_ms))
            self._broker.readers.forget(request.topics, request.member_id)
        return reply

    async def _poll(self, request: wire.PollRequest, call: GrpcCall) -> wire.PollReply:
        reply = await group_members.heartbeat(self._broker, request, _host(call))
        if not reply.rebalance and request.max_records > 0:
            wanted = list(
                dict.fromkeys(ReadPosition(one.topic, one.partition, one.offset) for one in request.positions)
            )
            reply.partitions.extend(await self._read(wanted, request.max_records, request.max_wait_ms, call))
        return reply

    async def Commit(self, request: wire.CommitRequest, call: GrpcCall) -> wire.CommitReply:  # noqa: N802
        """Commit the offsets of a member."""

        async def commit() -> wire.CommitReply:
            for topic in sorted({one.topic for one in request.offsets}):
                call.rights.check_topic(Operation.READ, topic)
            return await group_members.commit(self._broker, request)

        return await self._coordinated("Commit", request, call, commit)

    async def Unsubscribe(self, request: wire.UnsubscribeRequest, call: GrpcCall) -> wire.UnsubscribeReply:  # noqa: N802
        """Leave a group."""
        return await self._coordinated(
            "Unsubscribe", request, call, lambda: group_members.unsubscribe(self._broker, request)
        )

    def _note_reader(self, topics: Iterable[str], member_id: str, call: GrpcCall) -> None:
        """Count a member at the broker that it called, for the topics that exist and that it may describe."""
        if call.is_forwarded:
            return
        known = (name for name in topics if self._broker.view.topic(name) is not None)
        allows = call.rights.allows
        self._broker.readers.note(
            (name for name in known if allows(Operation.DESCRIBE, ResourceType.TOPIC, name)), member_id
        )

    async def _coordinated(
        self, method: str, request: Any, call: GrpcCall, here: Callable[[], Awaitable[T]], wait_ms: int = 0
    ) -> T:
        """Return the answer of the group's coordinator: of `here`, or of another broker."""

        async def answer() -> T:
            call.rights.check(Operation.READ, ResourceType.GROUP, request.group)
            for topic in getattr(request, "topics", ()):
                call.rights.check_topic(Operation.DESCRIBE, topic)
            where = await self._routes.coordinator_of(request.group, forwarded=call.is_forwarded)
            if where is None:
                return await here()
            reply: T = await self._routes.forward(where, method, request, call, wait_ms / 1_000 + FORWARD_SLACK_S)
            return reply

        return await answered(call, answer)

    async def Consume(self, request: wire.ConsumeRequest, call: GrpcCall) -> wire.ConsumeReply:  # noqa: N802
        """Read one partition."""
        return await answered(call, lambda: self._consume(request, call))

    async def _consume(self, request: wire.ConsumeRequest, call: GrpcCall) -> wire.ConsumeReply:
        call.rights.check_topic(Operation.READ, request.topic)
        leader = self._routes.leader_of(request.topic, request.partition, forwarded=call.is_forwarded)
        if leader is not None:
            timeout_s = request.max_wait_ms / 1_000 + FORWARD_SLACK_S
            reply: wire.ConsumeReply = await self._routes.forward(leader, "Consume", request, call, timeout_s)
            return reply
        partition = self._broker.view.partition(request.topic, request.partition)
        found = await read_partitions(
            self._broker,
            [ReadPosition(request.topic, request.partition, request.offset)],
            max_records=_bounded(request.max_records),
            max_wait_ms=request.max_wait_ms,
            committed=not request.uncommitted,
        )
        await self._check_again((request.topic,), call)
        if found and found[0].error:
            raise by_name(found[0].error)(found[0].reason)
        return wire.ConsumeReply(
            records=found[0].records if found else (),
            next_offset=found[0].next_offset if found else request.offset,
            high_watermark=partition.high_watermark,
            log_start_offset=partition.log_start_offset,
        )

    async def _check_again(self, topics: Iterable[str], call: GrpcCall) -> None:
        """Check login and rights after a wait, in which they may have ended."""
        await call.check_login(self._broker.clock_ms())
        for topic in topics:
            call.rights.check_topic(Operation.READ, topic)

    async def _read(
        self, wanted: Sequence[ReadPosition], max_records: int, max_wait_ms: int, call: GrpcCall
    ) -> list[wire.PartitionRecords]:
        """Read new records of partitions, wherever their leaders are.

        First all leaders are asked for the records that they have, so that the quickest one cannot starve the others.
        Only when none has any, this waits, and the first leader with records does not wait for the others.
        """
        here: list[ReadPosition] = []
        elsewhere: list[tuple[ReadPosition, Peer]] = []
        refused: list[wire.PartitionRecords] = []
        for one in wanted:
            try:
                call.rights.check_topic(Operation.READ, one.topic)
                leader = self._routes.leader_of(one.topic, one.partition, forwarded=False)
            except TidemillError as error:
                refused.append(_refused(one, error))
                continue
            here.append(one) if leader is None else elsewhere.append((one, leader))
        most = _bounded(max_records)

        def ask(wait_ms: int) -> list[Coroutine[Any, Any, list[wire.PartitionRecords]]]:
            calls = [self._read_there(one, leader, most, wait_ms, call) for one, leader in elsewhere]
            return (
                [*calls, read_partitions(self._broker, here, max_records=most, max_wait_ms=wait_ms)] if here else calls
            )

        if refused or elsewhere:
            found = refused + await _all_news(ask(0))
            if found or not elsewhere:
                return found
        found = await _first_news(ask(max_wait_ms))
        await self._check_again({one.topic for one in found}, call)
        return found

    async def _read_there(
        self, wanted: ReadPosition, leader: Peer, max_records: int, max_wait_ms: int, call: GrpcCall
    ) -> list[wire.PartitionRecords]:
        request = wire.ConsumeRequest(**wanted._asdict(), max_records=max_records, max_wait_ms=max_wait_ms)
        try:
            reply = await self._routes.forward(leader, "Consume", request, call, max_wait_ms / 1_000 + FORWARD_SLACK_S)
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

    async def Replicate(self, request: wire.ReplicateRequest, call: GrpcCall) -> wire.ReplicateReply:  # noqa: N802
        """Report how far the replicas of partitions are, as their leaders know it."""

        async def status() -> wire.ReplicateReply:
            topics = self._topics(request.topics, call)
            found = [self._status(topic, info) for topic in topics for info in topic.partitions]
            if not call.is_forwarded:
                await self._ask_leaders(found, call)
            return wire.ReplicateReply(partitions=found)

        return await answered(call, status)

    def _status(self, topic: Topic, info: PartitionInfo) -> wire.ReplicaStatus:
        status = wire.ReplicaStatus(topic=topic.name, partition=_partition(info))
        status.log_start_offset = status.high_watermark = status.log_end_offset = UNKNOWN_OFFSET
        carried = self._broker.partitions.find(topic.name, info.index)
        if carried is not None and info.leader == self._broker.node_id:
            status.log_start_offset = carried.log_start_offset
            status.high_watermark = carried.high_watermark
            status.log_end_offset = carried.log_end_offset
        return status

    async def _ask_leaders(self, found: Sequence[wire.ReplicaStatus], call: GrpcCall) -> None:
        """Fill in partitions that other brokers lead. If a broker does not answer, its partitions stay unknown."""
        peers = {peer.node_id: peer for peer in self._routes.brokers() if peer.address}
        elsewhere = {one.partition.leader for one in found} - {self._broker.node_id}
        request = wire.ReplicateRequest(topics=sorted({one.topic for one in found}))
        asked = [self._routes.forward(peers[node], "Replicate", request, call) for node in elsewhere if node in peers]
        for reply in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(reply, BaseException):
                continue
            known = {(one.topic, one.partition.partition): one for one in reply.partitions if one.log_end_offset >= 0}
            for one in found:
                reported = known.get((one.topic, one.partition.partition))
                if reported is not None:
                    one.CopyFrom(reported)


async def _all_news(calls: Iterable[Any]) -> list[wire.PartitionRecords]:
    """Return the results of the calls that ended in time, as far as they fit into an answer; cancel the others."""
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
    """Return the result of the first call with records, and of all that ended with it; cancel the others."""
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
    """Return the batch as it is stored."""
    headers = sum(len(record.headers) for record in batch.records)
    if headers > BATCH_HEADERS_MAX:
        raise InvalidRecord(f"the batch has {headers} headers; the limit is {BATCH_HEADERS_MAX}; send smaller batches")
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
        raise InvalidTimestamp("the timestamp of a record is before 1970; send milliseconds since 1970")
    if not batch.HasField("sequence"):
        return build_batch(records)
    sequence = batch.sequence
    if not 0 <= sequence.producer_epoch <= PRODUCER_EPOCH_MAX or sequence.producer_id < 0 or sequence.first < 0:
        raise InvalidRequest(
            f"invalid sequence {sequence.producer_id}, {sequence.producer_epoch}, {sequence.first} (id, epoch, first)"
        )
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


def _all_failed(reply: wire.ProduceReply) -> bool:
    """Whether nothing was stored, by the client's own fault."""
    return bool(reply.outcomes) and all(issubclass(by_name(one.error), OWN_ERRORS) for one in reply.outcomes)


def _host(call: GrpcCall) -> str:
    """Return the client's address in the format of group descriptions."""
    return f"/{call.caller.host}"
