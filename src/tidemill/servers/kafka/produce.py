"""Produce: passes the batch of each partition to its leader, and returns the offsets.

Records are not decoded here: a batch is a view into the request frame. The appends of a request must start before the
next request of the connection starts. So the batches of a producer reach a partition in the order of sending, and many
of them share one flush.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from functools import partial
from struct import Struct
from uuid import UUID

import structlog

from tidemill.broker.metrics import PRODUCE
from tidemill.model.errors import (
    ConcurrentTransactions,
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTxnState,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    ProtocolViolation,
    TidemillError,
    TransactionAbortable,
    UnknownTopicId,
)
from tidemill.model.topics import PIPELINES, WAITING, refuse_internal
from tidemill.records.header import ATTRIBUTES_AT, COUNT_AT, HEADER_SIZE, PRODUCER_AT, TRANSACTIONAL_BIT
from tidemill.security.core.failing_producers import OWN_ERRORS
from tidemill.security.core.resources import Operation, ResourceType
from tidemill.servers.kafka.api import Buffers, Call, error_code, error_message
from tidemill.servers.kafka.error_counts import count_error, error_class
from tidemill.servers.kafka.loop_guard import LOOP_ITEMS_MAX
from tidemill.servers.kafka.measured_steps import measured
from tidemill.servers.kafka.pipeline_reports import take_report
from tidemill.tracing.record_tracer import RecordTracer
from tidemill.wire.kafka.cursor import TopicKey
from tidemill.wire.kafka.produce import ProduceOutcome, ProducePartition, ProduceRequest, write_produce

APPENDS_AT_ONCE = 100
"""Concurrent appends of a large request."""
_ABORTABLE_FROM = 11
_IMPLICIT_FROM = 12
_ATTRIBUTES = Struct(">h")
_PRODUCER = Struct(">qh")
_COUNT = Struct(">i")
_NAME = "Produce"
_WRITE, _TOPIC, _TRANSACTIONAL_ID = Operation.WRITE, ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID

log = structlog.get_logger("tidemill.kafka")


def produce(call: Call, request: ProduceRequest) -> Awaitable[Buffers | None]:
    """Start every append in order; the response is sent when all have ended.

    A large request starts them in batches. The connection starts no other request before it ends.
    """
    topics = request.topics
    if len(topics) == 1 and len(topics[0][1]) == 1:
        return _one(call, request, topics[0][0], topics[0][1][0])
    if sum(len(parts) for _, parts in topics) + len(topics) > LOOP_ITEMS_MAX:
        return _some_at_a_time(call, request)
    return _many(call, request, [(topic, _started(call, request, topic, parts)) for topic, parts in topics])


def _started(
    call: Call, request: ProduceRequest, topic: TopicKey, parts: Iterable[ProducePartition]
) -> list[asyncio.Task[ProduceOutcome]]:
    loop = asyncio.get_running_loop()
    if call.broker.security.throttle.measures_time:
        return [loop.create_task(measured(call, _append(call, request, topic, part))) for part in parts]
    return [loop.create_task(_append(call, request, topic, part)) for part in parts]


async def _one(call: Call, request: ProduceRequest, topic: TopicKey, part: ProducePartition) -> Buffers | None:
    outcomes = [(topic, [await _append(call, request, topic, part)])]
    _throttle_failing(call, 1)
    return _answer(call, request, outcomes)


async def _many(
    call: Call, request: ProduceRequest, appends: list[tuple[TopicKey, list[asyncio.Task[ProduceOutcome]]]]
) -> Buffers | None:
    outcomes = [(topic, [await task for task in tasks]) for topic, tasks in appends]
    _throttle_failing(call, sum(len(tasks) for _, tasks in appends))
    return _answer(call, request, outcomes)


async def _some_at_a_time(call: Call, request: ProduceRequest) -> Buffers | None:
    outcomes = []
    async for topic, parts in call.in_slices(request.topics):
        done: list[ProduceOutcome] = []
        async for start in call.in_slices(range(0, len(parts), APPENDS_AT_ONCE)):
            done += [await task for task in _started(call, request, topic, parts[start : start + APPENDS_AT_ONCE])]
        outcomes.append((topic, done))
    _throttle_failing(call, sum(len(done) for _, done in outcomes))
    return await call.in_worker(_answer, call, request, outcomes)


def _throttle_failing(call: Call, appends: int) -> None:
    """Let a producer wait whose requests mostly fail; a request has failed when all its appends have."""
    failing = call.broker.security.failing_producers
    if (call.own_errors or failing.is_watching) and call.peer is None:
        has_failed = 0 < appends <= call.own_errors
        call.throttle(failing.record(call.principal.name, call.client_id, call.now_s(), has_failed=has_failed))


def _answer(
    call: Call, request: ProduceRequest, outcomes: list[tuple[TopicKey, list[ProduceOutcome]]]
) -> Buffers | None:
    if request.acks:
        return [write_produce(call.version, outcomes)]
    failed = [outcome for _, parts in outcomes for outcome in parts if outcome.error_code]
    if failed:
        # acks=0 has no response, so closing the connection is the only way to report the error.
        raise ProtocolViolation(
            f"an append with acks=0 failed with error {failed[0].error_code}: {failed[0].error_message}"
        )
    return None


async def _append(call: Call, request: ProduceRequest, topic: TopicKey, part: ProducePartition) -> ProduceOutcome:
    tracer = call.broker.tracer
    try:
        if tracer is not None:
            return await _store_traced(tracer.records, call, request, topic, part)
        return await _store(call, request, topic, part)
    except TidemillError as error:
        return _refused(call, topic, part, _for_version(call.version, error))
    except Exception as error:
        log.exception("append_failed", topic=str(topic), partition=part.partition)
        return _refused(call, topic, part, error)


def _refused(call: Call, topic: TopicKey, part: ProducePartition, known: BaseException) -> ProduceOutcome:
    # The error is not stored: its traceback would keep the batch in memory until the next garbage collection.
    code = error_code(known)
    count_error(call.broker.metrics, _NAME, code)
    call.broker.note_topic_error(topic, PRODUCE, error_class(code))
    call.own_errors += isinstance(known, OWN_ERRORS)
    return ProduceOutcome(
        part.partition,
        code,
        record_errors=getattr(known, "record_errors", ()),
        error_message=error_message(known),
    )


def _for_version(version: int, error: TidemillError) -> TidemillError:
    """The error that a producer of this version knows."""
    if isinstance(error, InvalidTxnState) and version >= _ABORTABLE_FROM:
        return TransactionAbortable(str(error))
    if isinstance(error, ConcurrentTransactions) and version < _IMPLICIT_FROM:
        return NotEnoughReplicas(str(error))  # as in Kafka: an error that they retry
    return error


async def _store_traced(
    tracer: RecordTracer, call: Call, request: ProduceRequest, topic: TopicKey, part: ProducePartition
) -> ProduceOutcome:
    started_ns = tracer.now_ns()
    outcome = await _store(call, request, topic, part)
    name = topic if isinstance(topic, str) else _name_of(call, topic)
    if part.records is not None:
        tracer.produced(name, part.partition, part.records, outcome.base_offset, started_ns, call.client_id)
    return outcome


async def _store(call: Call, request: ProduceRequest, topic: TopicKey, part: ProducePartition) -> ProduceOutcome:
    broker = call.broker
    acks = request.acks
    if acks not in {-1, 0, 1}:
        raise InvalidRequiredAcks(f"acks={acks} is not valid; use -1, 0 or 1")
    records = part.records
    if records is None or len(records) < HEADER_SIZE:
        raise InvalidRecord(f"the request has no record batch for partition {part.partition}")
    name = topic if isinstance(topic, str) else _name_of(call, topic)
    if name == PIPELINES:
        await take_report(call, part.partition, records)
        return ProduceOutcome(part.partition, 0)
    is_transactional = _ATTRIBUTES.unpack_from(records, ATTRIBUTES_AT)[0] & TRANSACTIONAL_BIT
    if is_transactional:
        call.check(_WRITE, _TRANSACTIONAL_ID, request.transactional_id or "")
    call.check(_WRITE, _TOPIC, name)
    _check_internal(call, name)
    partition = broker.view.partition(name, part.partition)
    verify = None
    if is_transactional:
        producer_id, producer_epoch = _PRODUCER.unpack_from(records, PRODUCER_AT)
        verify = partial(
            broker.transaction_verifier.verify,
            partition,
            request.transactional_id,
            producer_id,
            producer_epoch,
            implicit=call.version >= _IMPLICIT_FROM,
        )
    version, timeout_s = call.version, max(request.timeout_ms, 0) / 1000
    if broker.scheduler is not None and (partition.settings.tidemill_schedule_enable or call.peer is not None):
        take = broker.scheduler.append if call.peer is None else broker.scheduler.append_from_peer
        appended = await take(partition, records, acks=acks, version=version, timeout_s=timeout_s, verify=verify)
    else:
        appended = await partition.leader.append(
            records, acks=acks, request_version=version, timeout_s=timeout_s, verify=verify
        )
    broker.metrics.topic(name).produced(len(records), _COUNT.unpack_from(records, COUNT_AT)[0])
    return ProduceOutcome(
        part.partition, 0, appended.base_offset, appended.log_append_time_ms, appended.log_start_offset
    )


def _check_internal(call: Call, name: str) -> None:
    """Reject writes to internal topics; only brokers may send scheduled records to each other."""
    if name != WAITING or call.peer is None:
        refuse_internal(name)
    elif call.broker.scheduler is None:
        raise NotLeaderOrFollower("this broker does not deliver scheduled records at the moment; try again")


def _name_of(call: Call, topic_id: UUID) -> str:
    known = call.broker.view.topic_by_id(topic_id)
    if known is None:
        raise UnknownTopicId(f"there is no topic with id {topic_id}; refresh the metadata")
    return known.name
