"""The transaction APIs: producer ids, partitions and offsets of a transaction, and its end.

PRODUCER_FENCED is newer than these APIs. A client that uses an older version knows only INVALID_PRODUCER_EPOCH
(librdkafka and aiokafka use version 0 or 1). So each API has a version from which PRODUCER_FENCED may be returned. The
same applies to TRANSACTION_ABORTABLE in TxnOffsetCommit.
"""

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tidemill.client.kafka.transaction_markers import TransactionalProducer
from tidemill.groups.core.offsets import OffsetCommit, OffsetCommitter
from tidemill.model.errors import (
    ClusterAuthorizationFailed,
    InvalidGroupId,
    InvalidProducerEpoch,
    InvalidRequest,
    InvalidTxnState,
    OffsetMetadataTooLarge,
    OperationNotAttempted,
    ProducerFenced,
    TidemillError,
    TransactionAbortable,
    UnknownTopicOrPartition,
)
from tidemill.model.topics import GROUP_OFFSETS, TopicPartition
from tidemill.security.core.resources import CLUSTER_NAME, Operation, ResourceType
from tidemill.servers.kafka.api import Call, error_code
from tidemill.servers.kafka.transaction_admin import by_topic
from tidemill.transactions.core.rules import InitProducer
from tidemill.transactions.core.state import NO_EPOCH, NO_PRODUCER_ID, ProducerIdAndEpoch
from tidemill.transactions.interface import TransactionMarker

if TYPE_CHECKING:
    from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest
    from kio.schema.add_offsets_to_txn.v4.response import AddOffsetsToTxnResponse
    from kio.schema.add_partitions_to_txn.v3.request import AddPartitionsToTxnRequest as AddPartitionsToTxnRequestV3
    from kio.schema.add_partitions_to_txn.v5.request import AddPartitionsToTxnRequest
    from kio.schema.add_partitions_to_txn.v5.response import AddPartitionsToTxnResponse
    from kio.schema.end_txn.v5.request import EndTxnRequest
    from kio.schema.end_txn.v5.response import EndTxnResponse
    from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
    from kio.schema.init_producer_id.v5.response import InitProducerIdResponse
    from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest
    from kio.schema.txn_offset_commit.v5.response import TxnOffsetCommitResponse
    from kio.schema.write_txn_markers.v1.request import WriteTxnMarkersRequest
    from kio.schema.write_txn_markers.v1.response import WriteTxnMarkersResponse

_FENCED_FROM = {22: 4, 24: 2, 25: 2, 26: 2}
_BUMP_FROM = 5
_IMPLICIT_FROM = 5
_ASKED_BY_BROKERS_FROM = 4
_ABORTABLE_FROM = 4
_MILLISECOND = timedelta(milliseconds=1)

_T = TypeVar("_T")


async def init_producer_id(
    call: Call["InitProducerIdResponse"], request: "InitProducerIdRequest"
) -> "InitProducerIdResponse":
    """Give a producer its id and epoch; with a transactional id they fence all earlier producers."""
    wanted = None
    if request.transactional_id is not None:
        given = ProducerIdAndEpoch(getattr(request, "producer_id", -1), getattr(request, "producer_epoch", -1))
        wanted = InitProducer(request.transactional_id, request.transaction_timeout // _MILLISECOND, given)
    try:
        _check_producer(call, request.transactional_id)
        identity: ProducerIdAndEpoch = await _with_known_error(call, call.broker.transactions.init_producer(wanted))
    except TidemillError as error:
        return call.response(error_code=error_code(error), producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)
    return call.response(producer_id=identity.producer_id, producer_epoch=identity.epoch)


def _check_producer(call: Call, transactional_id: str | None) -> None:
    """A producer without a transactional id needs the right to write to any topic, or IDEMPOTENT_WRITE."""
    if transactional_id is not None:
        call.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
    elif not call.allows(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME) and not call.allows_anywhere(
        Operation.WRITE, ResourceType.TOPIC
    ):
        call.check_cluster(Operation.IDEMPOTENT_WRITE)


async def add_partitions_to_txn(
    call: Call["AddPartitionsToTxnResponse"], request: "AddPartitionsToTxnRequest"
) -> "AddPartitionsToTxnResponse":
    """Add partitions to the transaction, all or none."""
    if call.version >= _ASKED_BY_BROKERS_FROM:
        return await _asked_by_broker(call, request)
    old = cast("AddPartitionsToTxnRequestV3", request)
    wanted = await _named(call, old.v3_and_below_topics)
    denial = call.denial(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, old.v3_and_below_transactional_id)
    errors: dict[TopicPartition, TidemillError] = dict.fromkeys(wanted, denial or OperationNotAttempted())
    refused = {} if denial is not None else await _refused_partitions(call, wanted)
    errors |= refused
    if denial is None and not refused:
        producer = ProducerIdAndEpoch(old.v3_and_below_producer_id, old.v3_and_below_producer_epoch)
        errors = {}
        try:
            name = _required(old.v3_and_below_transactional_id)
            await _with_known_error(call, call.broker.transactions.add_partitions(name, producer, frozenset(wanted)))
        except TidemillError as error:
            errors = dict.fromkeys(wanted, error)
    return call.response(results_by_topic_v3_and_below=await _partition_results(call, wanted, errors))


async def _refused_partitions(call: Call, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, TidemillError]:
    """The partitions that cannot be in a transaction of this client."""
    refused: dict[TopicPartition, TidemillError] = {}
    async for each in call.in_slices(wanted):
        denial = call.denial(Operation.WRITE, ResourceType.TOPIC, each.topic)
        if denial is not None:
            refused[each] = denial
        elif not _exists(call, each):
            refused[each] = UnknownTopicOrPartition()
    return refused


async def _named(call: Call, topics: Iterable[Any]) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, index)
        async for topic in call.in_slices(topics)
        async for index in call.in_slices(topic.partitions)
    ]


async def _asked_by_broker(
    call: Call["AddPartitionsToTxnResponse"], request: "AddPartitionsToTxnRequest"
) -> "AddPartitionsToTxnResponse":
    """Verify that a leader's partition is in a transaction, or add it."""
    if call.peer is None:
        raise ClusterAuthorizationFailed(
            f"AddPartitionsToTxn version {call.version} is for brokers of this cluster; use version 3"
        )
    results = []
    async for asked in call.in_slices(request.transactions):
        wanted = await _named(call, asked.topics)
        errors: dict[TopicPartition, TidemillError] = {}
        async for where in call.in_slices(wanted):
            try:
                await call.broker.transactions.verify(
                    asked.transactional_id,
                    asked.producer_id,
                    asked.producer_epoch,
                    where,
                    implicit=not asked.verify_only,
                )
            except TidemillError as error:
                errors[where] = error
        results.append(
            call.part(
                "AddPartitionsToTxnResult",
                transactional_id=asked.transactional_id,
                topic_results=await _partition_results(call, wanted, errors),
            )
        )
    return call.response(error_code=0, results_by_transaction=tuple(results))


async def write_txn_markers(
    call: Call["WriteTxnMarkersResponse"], request: "WriteTxnMarkersRequest"
) -> "WriteTxnMarkersResponse":
    """Write the end markers of a coordinator to partitions that this broker leads."""
    results = []
    async for marker in call.in_slices(request.markers):
        topics = []
        async for topic in call.in_slices(marker.topics):
            parts = [
                await _marked(call, marker, topic.name, index)
                async for index in call.in_slices(topic.partition_indexes)
            ]
            topics.append(call.part("WritableTxnMarkerTopicResult", name=topic.name, partitions=tuple(parts)))
        results.append(call.part("WritableTxnMarkerResult", producer_id=marker.producer_id, topics=tuple(topics)))
    return call.response(markers=tuple(results))


async def _marked(call: Call, marker: Any, topic: str, index: int) -> Any:
    error: TidemillError | None = None
    try:
        if call.peer is None:
            raise ClusterAuthorizationFailed("WriteTxnMarkers is only for brokers of this cluster")
        await call.broker.transaction_router.mark_here(
            TransactionMarker(
                TopicPartition(topic, index),
                marker.producer_id,
                marker.producer_epoch,
                marker.transaction_result,
                marker.coordinator_epoch,
            )
        )
    except TidemillError as caught:
        error = caught
    return call.part("WritableTxnMarkerPartitionResult", partition_index=index, error_code=error_code(error))


async def end_txn(call: Call["EndTxnResponse"], request: "EndTxnRequest") -> "EndTxnResponse":
    """Commit or abort; from version 5 on the response has the producer id and epoch of the next transaction."""
    call.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    identity: ProducerIdAndEpoch = await _with_known_error(
        call,
        call.broker.transactions.end_transaction(
            _required(request.transactional_id),
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            commit=request.committed,
            bump=call.version >= _BUMP_FROM,
        ),
    )
    return call.response(producer_id=identity.producer_id, producer_epoch=identity.epoch)


async def add_offsets_to_txn(
    call: Call["AddOffsetsToTxnResponse"], request: "AddOffsetsToTxnRequest"
) -> "AddOffsetsToTxnResponse":
    """Add the offsets of a group to the transaction."""
    call.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    call.check(Operation.READ, ResourceType.GROUP, request.group_id)
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    where = frozenset({_offsets_partition(call, request.group_id)})
    await _with_known_error(
        call, call.broker.transactions.add_partitions(_required(request.transactional_id), producer, where)
    )
    return call.response()


async def txn_offset_commit(
    call: Call["TxnOffsetCommitResponse"], request: "TxnOffsetCommitRequest"
) -> "TxnOffsetCommitResponse":
    """Stage offsets; they are committed to the group when the transaction commits."""
    entries = [
        OffsetCommit(
            topic.name,
            part.partition_index,
            part.committed_offset,
            getattr(part, "committed_leader_epoch", -1),
            part.committed_metadata or "",
        )
        async for topic in call.in_slices(request.topics)
        async for part in call.in_slices(topic.partitions)
    ]
    denial = call.denial(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id) or call.denial(
        Operation.READ, ResourceType.GROUP, request.group_id
    )
    errors: dict[TopicPartition, TidemillError] = {}
    async for each in call.in_slices(entries):
        if denial is not None:
            errors[TopicPartition(each.topic, each.partition)] = denial
        elif (refusal := _refusal(call, each)) is not None:
            errors[TopicPartition(each.topic, each.partition)] = refusal
    good = [each async for each in call.in_slices(entries) if (each.topic, each.partition) not in errors]
    if good:
        try:
            await _stage(call, request, good)
        except TidemillError as error:
            async for each in call.in_slices(good):
                errors[TopicPartition(each.topic, each.partition)] = error
    return call.response(topics=await _commit_results(call, request.topics, errors))


async def _stage(call: Call, request: Any, entries: Sequence[OffsetCommit]) -> None:
    broker, producer = call.broker, ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    where = _offsets_partition(call, request.group_id)
    writer = TransactionalProducer(request.transactional_id, *producer)
    implicit = call.version >= _IMPLICIT_FROM
    try:
        check = await broker.transaction_router.verify(broker.transactions, writer, where, implicit=implicit)
        await call.broker.groups.commit_transactional(
            request.group_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            offsets=entries,
            check=check,
            member_id=getattr(request, "member_id", ""),
            generation=getattr(request, "generation_id", -1),
            group_instance_id=getattr(request, "group_instance_id", None),
            client=OffsetCommitter(client_id=call.client_id, client_host=f"/{call.client_host}"),
        )
    except InvalidTxnState as error:
        raise (TransactionAbortable(str(error)) if call.version >= _ABORTABLE_FROM else error) from error


async def _with_known_error(call: Call, work: Awaitable[_T]) -> _T:
    """The result of `work`; a fenced producer gets the error that its version knows."""
    try:
        return await work
    except ProducerFenced as error:
        if call.version < _FENCED_FROM.get(call.api_key, 0):
            raise InvalidProducerEpoch(str(error)) from error
        raise


def _required(transactional_id: str) -> str:
    """The transactional id, which may not be empty."""
    if not transactional_id:
        raise InvalidRequest("the transactional id is empty")
    return transactional_id


def _refusal(call: Call, entry: OffsetCommit) -> TidemillError | None:
    denial = call.denial(Operation.READ, ResourceType.TOPIC, entry.topic)
    if denial is not None:
        return denial
    if not _exists(call, TopicPartition(entry.topic, entry.partition)):
        return UnknownTopicOrPartition()
    if len(entry.metadata.encode()) > call.broker.settings.offset_metadata_max_bytes:
        return OffsetMetadataTooLarge()
    return None


def _offsets_partition(call: Call, group_id: str) -> TopicPartition:
    if not group_id:
        raise InvalidGroupId("the group id is empty")
    return TopicPartition(GROUP_OFFSETS, call.broker.groups.partition_of(group_id))


def _exists(call: Call, partition: TopicPartition) -> bool:
    topic = call.broker.view.topic(partition.topic)
    return topic is not None and 0 <= partition.partition < len(topic.partitions)


async def _partition_results(
    call: Call, wanted: Iterable[TopicPartition], errors: dict[TopicPartition, TidemillError]
) -> tuple[Any, ...]:
    results = []
    async for topic, indexes in call.in_slices(by_topic(wanted).items()):
        parts = [
            call.part(
                "AddPartitionsToTxnPartitionResult",
                partition_index=index,
                partition_error_code=error_code(errors.get(TopicPartition(topic, index))),
            )
            async for index in call.in_slices(indexes)
        ]
        results.append(call.part("AddPartitionsToTxnTopicResult", name=topic, results_by_partition=tuple(parts)))
    return tuple(results)


async def _commit_results(
    call: Call, topics: Iterable[Any], errors: Mapping[TopicPartition, TidemillError]
) -> tuple[Any, ...]:
    results = []
    async for topic in call.in_slices(topics):
        parts = [
            call.part(
                "TxnOffsetCommitResponsePartition",
                partition_index=part.partition_index,
                error_code=error_code(errors.get(TopicPartition(topic.name, part.partition_index))),
            )
            async for part in call.in_slices(topic.partitions)
        ]
        results.append(call.part("TxnOffsetCommitResponseTopic", name=topic.name, partitions=tuple(parts)))
    return tuple(results)
