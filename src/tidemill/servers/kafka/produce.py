"""Produce: the first step of a record's walk.

The records are not opened here. Each partition's batch goes to its partition as the view into the frame that it is;
the appends of one request are started before the next request of the connection is looked at, so that batches of one
producer reach a partition in the order in which they were sent, while many of them wait for one flush together.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from functools import partial
from struct import Struct
from uuid import UUID

import structlog

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
from tidemill.model.topics import WAITING, refuse_internal
from tidemill.records.header import ATTRIBUTES_AT, COUNT_AT, HEADER_SIZE, PRODUCER_AT, TRANSACTIONAL_BIT
from tidemill.servers.kafka.api import Api, Buffers, Call, error_code, error_message
from tidemill.servers.kafka.loop_guard import LOOP_ITEMS_MAX
from tidemill.wire.kafka.cursor import TopicKey
from tidemill.wire.kafka.produce import ProduceOutcome, ProducePartition, ProduceRequest, read_produce, write_produce

SERVED_FROM = 3
# librdkafka before 2.11.1 stops compressing when version 0 is not listed (KAFKA-18659).
VERSIONS = (0, 13)
APPENDS_AT_ONCE = 100
"""Appends of a large request that are under way together."""
_ABORTABLE_FROM = 11
_IMPLICIT_FROM = 12
_ATTRIBUTES = Struct(">h")
_PRODUCER = Struct(">qh")
_COUNT = Struct(">i")
_NAME = "Produce"

log = structlog.get_logger("tidemill.kafka")


def produce(call: Call, request: ProduceRequest) -> Awaitable[Buffers | None]:
    """Start every append, in order; the answer follows when all have ended.

    A large request starts some at a time: the connection starts nothing behind it until it is answered.
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
    return [loop.create_task(_append(call, request, topic, part)) for part in parts]


async def _one(call: Call, request: ProduceRequest, topic: TopicKey, part: ProducePartition) -> Buffers | None:
    return _answer(call, request, [(topic, [await _append(call, request, topic, part)])])


async def _many(
    call: Call, request: ProduceRequest, appends: list[tuple[TopicKey, list[asyncio.Task[ProduceOutcome]]]]
) -> Buffers | None:
    outcomes = [(topic, [await task for task in tasks]) for topic, tasks in appends]
    return _answer(call, request, outcomes)


async def _some_at_a_time(call: Call, request: ProduceRequest) -> Buffers | None:
    outcomes = []
    async for topic, parts in call.in_slices(request.topics):
        done: list[ProduceOutcome] = []
        async for start in call.in_slices(range(0, len(parts), APPENDS_AT_ONCE)):
            done += [await task for task in _started(call, request, topic, parts[start : start + APPENDS_AT_ONCE])]
        outcomes.append((topic, done))
    return await call.in_worker(_answer, call, request, outcomes)


def _answer(
    call: Call, request: ProduceRequest, outcomes: list[tuple[TopicKey, list[ProduceOutcome]]]
) -> Buffers | None:
    if request.acks:
        return [write_produce(call.version, outcomes)]
    failed = [outcome for _, parts in outcomes for outcome in parts if outcome.error_code]
    if failed:
        # Without an answer, losing the connection is the only way in which the producer can hear of it.
        raise ProtocolViolation(f"acks=0 and error {failed[0].error_code}: {failed[0].error_message}")
    return None


async def _append(call: Call, request: ProduceRequest, topic: TopicKey, part: ProducePartition) -> ProduceOutcome:
    try:
        return await _store(call, request, topic, part)
    except TidemillError as error:
        return _refused(call, part, _in_words_of(call.version, error))
    except Exception as error:
        log.exception("an append failed", topic=str(topic), partition=part.partition)
        return _refused(call, part, error)


def _refused(call: Call, part: ProducePartition, known: BaseException) -> ProduceOutcome:
    # The error is not kept: its traceback and a frame that holds it would keep the batch until the next collection.
    code = error_code(known)
    call.broker.telemetry.api(_NAME).failed(code)
    return ProduceOutcome(
        part.partition,
        code,
        record_errors=getattr(known, "record_errors", ()),
        error_message=error_message(known),
    )


def _in_words_of(version: int, error: TidemillError) -> TidemillError:
    """The error as a producer of this version knows it."""
    if isinstance(error, InvalidTxnState) and version >= _ABORTABLE_FROM:
        return TransactionAbortable(str(error))
    if isinstance(error, ConcurrentTransactions) and version < _IMPLICIT_FROM:
        return NotEnoughReplicas(str(error))  # what Kafka tells them, too: an error that they retry
    return error


async def _store(call: Call, request: ProduceRequest, topic: TopicKey, part: ProducePartition) -> ProduceOutcome:
    broker = call.broker
    acks = request.acks
    if acks not in {-1, 0, 1}:
        raise InvalidRequiredAcks(f"acks={acks}")
    records = part.records
    if records is None or len(records) < HEADER_SIZE:
        raise InvalidRecord("there is no record batch")
    name = topic if isinstance(topic, str) else _name_of(call, topic)
    _check_internal(call, name)
    partition = broker.partition(name, part.partition)
    verify = None
    if _ATTRIBUTES.unpack_from(records, ATTRIBUTES_AT)[0] & TRANSACTIONAL_BIT:
        producer_id, producer_epoch = _PRODUCER.unpack_from(records, PRODUCER_AT)
        verify = partial(
            broker.verify_transaction,
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
        appended = await partition.append(
            records, acks=acks, request_version=version, timeout_s=timeout_s, verify=verify
        )
    broker.telemetry.topic(name).produced(len(records), _COUNT.unpack_from(records, COUNT_AT)[0])
    return ProduceOutcome(
        part.partition, 0, appended.base_offset, appended.log_append_time_ms, appended.log_start_offset
    )


def _check_internal(call: Call, name: str) -> None:
    """Nobody writes to the broker's own topics, but brokers send each other records for later."""
    if name != WAITING or call.peer is None:
        refuse_internal(name)
    elif call.broker.scheduler is None:
        raise NotLeaderOrFollower("this broker delivers nothing at the moment")


def _name_of(call: Call, topic_id: UUID) -> str:
    known = call.broker.topic_by_id(topic_id)
    if known is None:
        raise UnknownTopicId(f"no topic has the id {topic_id}")
    return known.name


APIS = [
    Api(key=0, versions=VERSIONS, served_from=SERVED_FROM, handle=produce, read=read_produce, pipelined=True),
]
