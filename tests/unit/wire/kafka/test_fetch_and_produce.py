"""Produce and Fetch by hand: the same as kio's classes say, in every version."""

import dataclasses
import random
from typing import Any
from uuid import UUID

import pytest
from tests.support.wire_samples import kio_bytes, sample

from tidemill.model.errors import ProtocolViolation
from tidemill.wire.kafka.fetch import FetchOutcome, read_fetch, write_fetch
from tidemill.wire.kafka.produce import ProduceOutcome, ProducePartition, read_produce, write_produce
from tidemill.wire.kafka.schema import build, request_class, response_class, response_module

PRODUCE = range(3, 14)
FETCH = range(4, 18)
SEEDS = range(8)
TOPIC_ID = UUID(int=77)


def topic_of(entry: Any) -> Any:
    return getattr(entry, "topic_id", None) or getattr(entry, "topic", getattr(entry, "name", UUID(int=0)))


@pytest.mark.parametrize("version", PRODUCE)
def test_produce_is_read(version: int) -> None:
    for seed in SEEDS:
        message = sample(request_class(0, version), random.Random(seed))
        data = bytearray(b"head" + kio_bytes(message) + b"more")
        request = read_produce(data, 4, version)
        assert (request.transactional_id, request.acks) == (message.transactional_id, message.acks)
        assert request.timeout_ms == message.timeout.total_seconds() * 1000
        expected = [
            (topic_of(topic), [(part.index, part.records) for part in topic.partition_data])
            for topic in message.topic_data
        ]
        assert request.topics == expected


@pytest.mark.parametrize("version", FETCH)
def test_fetch_is_read(version: int) -> None:
    for seed in SEEDS:
        message = sample(request_class(1, version), random.Random(seed))
        request = read_fetch(b"head" + kio_bytes(message) + b"more", 4, version)
        assert (request.min_bytes, request.max_bytes) == (message.min_bytes, message.max_bytes)
        assert request.max_wait_ms == message.max_wait.total_seconds() * 1000
        assert request.committed == (message.isolation_level == 1)
        state = getattr(message, "replica_state", None)
        assert request.replica_id == (state.replica_id if state else message.replica_id)
        assert request.session_id == getattr(message, "session_id", 0)
        assert request.session_epoch == getattr(message, "session_epoch", -1)
        for (key, partitions), topic in zip(request.topics, message.topics, strict=True):
            assert key == topic_of(topic)
            assert [tuple(part) for part in partitions] == [
                (
                    part.partition,
                    getattr(part, "current_leader_epoch", -1),
                    part.fetch_offset,
                    part.partition_max_bytes,
                    getattr(part, "last_fetched_epoch", -1),
                )
                for part in topic.partitions
            ]
        forgotten = getattr(message, "forgotten_topics_data", ())
        assert request.forgotten == [(topic_of(topic), list(topic.partitions)) for topic in forgotten]


@pytest.mark.parametrize("version", PRODUCE)
def test_produce_answers_are_kios_bytes(version: int) -> None:
    outcomes = [
        ProduceOutcome(0, 0, 42, -1, 7),
        ProduceOutcome(2**31 - 1, 87, record_errors=[(3, "no key"), (9, None)], error_message="bad ü"),
        ProduceOutcome(1, 87, error_message="too large"),
        ProduceOutcome(2, 87, record_errors=[(0, None)]),
    ]
    topic = TOPIC_ID if version >= 13 else "orders"
    module = response_module(0, version)
    partitions = tuple(
        build(
            module.PartitionProduceResponse,
            {
                "index": outcome.partition,
                "error_code": outcome_code(outcome.error_code),
                "base_offset": outcome.base_offset,
                "log_append_time": None,
                "log_start_offset": outcome.log_start_offset,
                "error_message": outcome.error_message,
                "record_errors": tuple(
                    module.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
                    for index, text in outcome.record_errors
                )
                if version >= 8
                else (),
            },
        )
        for outcome in outcomes
    )
    entry = build(module.TopicProduceResponse, {"name": topic, "topic_id": topic, "partition_responses": partitions})
    expected = kio_bytes(build(response_class(0, version), {"responses": (entry,)}))
    assert write_produce(version, [(topic, outcomes)]) == expected


def outcome_code(code: int) -> Any:
    from kio.schema.errors import ErrorCode

    return ErrorCode(code)


@pytest.mark.parametrize("version", FETCH)
def test_fetch_answers_are_kios_bytes(version: int) -> None:
    outcomes = [
        FetchOutcome(0, 0, 10, 9, 1, [(5, 6), (7, 8)], [memoryview(b"abc"), b"d" * 300], 303),
        FetchOutcome(1, 3),
        FetchOutcome(2, 0, 1, 1, 0, None, [b"x"], 1),
    ]
    topic = TOPIC_ID if version >= 13 else "orders"
    module = response_module(1, version)
    partitions = tuple(
        build(
            module.PartitionData,
            {
                "partition_index": outcome.partition,
                "error_code": outcome_code(outcome.error_code),
                "high_watermark": outcome.high_watermark,
                "last_stable_offset": outcome.last_stable_offset,
                "log_start_offset": outcome.log_start_offset,
                "aborted_transactions": None
                if outcome.aborted is None
                else tuple(
                    module.AbortedTransaction(producer_id=producer, first_offset=first)
                    for producer, first in outcome.aborted
                ),
                "records": b"".join(outcome.records),
            },
        )
        for outcome in outcomes
    )
    entry = build(module.FetchableTopicResponse, {"topic": topic, "topic_id": topic, "partitions": partitions})
    fields = {"responses": (entry,), "session_id": 3, "error_code": outcome_code(0)}
    expected = kio_bytes(build(response_class(1, version), fields))
    assert b"".join(write_fetch(version, [(topic, outcomes)], session_id=3)) == expected


@pytest.mark.parametrize(("key", "version"), [(0, 3), (0, 9), (1, 4), (1, 12)])
def test_the_partitions_of_a_request_are_bounded(key: int, version: int) -> None:
    rng = random.Random(5)
    message: Any = None
    while message is None or not getattr(message, "topics" if key else "topic_data"):
        message = sample(request_class(key, version), rng)
    field = "topics" if key else "topic_data"
    many = getattr(message, field)[:1] * 60_000
    data = kio_bytes(build(request_class(key, version), {**_fields(message), field: many}))
    with pytest.raises(ProtocolViolation, match="items"):
        (read_fetch if key else read_produce)(data, 0, version)


def test_the_smallest_topics_and_partitions_are_read() -> None:
    topic = "01 01 00"  # an empty name, no partitions and no tags
    produce = bytes.fromhex(f"00 ffff 00007530 03 {topic} {topic}")
    assert read_produce(produce, 0, 9).topics == [("", []), ("", [])]
    partition = "00000007 01 00"  # its number, an empty batch and no tags
    produce = bytes.fromhex(f"00 ffff 00007530 02 01 03 {partition} {partition} 00")
    assert read_produce(produce, 0, 9).topics == [("", [ProducePartition(7, memoryview(b""))] * 2)]
    limits = "ffffffff 00000000 00000000 00000000 00 00000000 ffffffff"
    fetch = bytes.fromhex(f"{limits} 03 {topic} {topic} 01 01 00")
    assert read_fetch(fetch, 0, 12).topics == [("", []), ("", [])]
    forgotten = bytes.fromhex(f"{limits} 01 05 {topic} {topic} {topic} {topic} 01 00")
    assert read_fetch(forgotten, 0, 12).forgotten == [("", [])] * 4
    forgotten = bytes.fromhex(f"{limits} 01 02 01 03 00000001 00000002 00 01 00")
    assert read_fetch(forgotten, 0, 12).forgotten == [("", [1, 2])]


@pytest.mark.parametrize(
    ("version", "head", "size"),
    [
        (3, "ffff ffff 00007530 00000001 0001 74 00000001 00000000", "{:08x}"),
        (9, "00 ffff 00007530 02 02 74 02 00000000", "{:02x}"),
    ],
)
def test_records_that_are_announced_beyond_the_end_are_a_violation(version: int, head: str, size: str) -> None:
    """A slice would be shorter without an error, so the broker would store fewer bytes than were announced."""
    compact, records = int(version >= 9), b"abcd"

    def request(announced: int) -> bytes:
        end = b"\0\0\0" if compact else b""
        return bytes.fromhex(head + size.format((announced + compact) % 2**32)) + records + end

    assert read_produce(request(4), 0, version).topics == [("t", [ProducePartition(0, memoryview(records))])]
    beyond = 4 + 3 * compact + 1
    with pytest.raises(ProtocolViolation, match=f"records have the invalid length {beyond}"):
        read_produce(request(beyond), 0, version)
    if not compact:
        with pytest.raises(ProtocolViolation, match="records have the invalid length -2"):
            read_produce(request(-2), 0, version)


def _fields(message: Any) -> dict[str, Any]:
    return {each.name: getattr(message, each.name) for each in dataclasses.fields(message)}


@pytest.mark.parametrize(("key", "versions"), [(0, PRODUCE), (1, FETCH)])
def test_damaged_requests_are_violations_and_never_anything_else(key: int, versions: range) -> None:
    rng = random.Random(11)
    read = read_produce if key == 0 else read_fetch
    for version in versions:
        data = kio_bytes(sample(request_class(key, version), rng))
        for _ in range(100):
            damaged = bytearray(data[: rng.randrange(1, len(data) + 1)])
            for _ in range(rng.randrange(3)):
                damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
            try:
                read(damaged, 0, version)
            except ProtocolViolation:
                continue
