"""Produce by hand: the server reads what the client writes, and the client its response, in every version."""

import pytest
from tests.unit.client.kafka.server_side import answer, conversation, read_by_the_server

from tidemill.client.kafka.apis import FETCH, PRODUCE
from tidemill.client.kafka.fetch import FetchPosition, fetched
from tidemill.client.kafka.produce import Produced, produce_request, produced
from tidemill.model.errors import MessageTooLarge, ProtocolViolation
from tidemill.model.topics import TopicPartition
from tidemill.wire.kafka.fetch import FetchOutcome, write_fetch
from tidemill.wire.kafka.produce import ProduceOutcome, read_produce, write_produce

ORDERS = TopicPartition("orders", 5)
produce_versions = pytest.mark.parametrize("version", range(PRODUCE.low, PRODUCE.high + 1))


@produce_versions
def test_the_server_reads_the_batches_that_were_sent(version: int) -> None:
    batches = {TopicPartition("a", 0): b"first" * 99, ORDERS: b"second", TopicPartition("a", 7): b"third"}
    request = produce_request(batches, acks=-1, timeout_ms=1500, transactional_id="tx" if version % 2 else None)
    header, frame = read_by_the_server(conversation(PRODUCE, version), request)
    read = read_produce(frame, header.body, version)
    assert (read.transactional_id, read.acks, read.timeout_ms) == ("tx" if version % 2 else None, -1, 1500)
    found = {
        TopicPartition(str(topic), part.partition): bytes(part.records or b"")
        for topic, parts in read.topics
        for part in parts
    }
    assert found == {partition: bytes(batch) for partition, batch in batches.items()}


@produce_versions
def test_a_produce_response_is_decoded(version: int) -> None:
    outcomes = [
        ProduceOutcome(5, 0, 1000, 1_700_000_000_123, 3),
        ProduceOutcome(6, MessageTooLarge.code, error_message="too big by far"),
        ProduceOutcome(7, 46),
    ]
    found = produced(answer(PRODUCE, version, bytes(write_produce(version, [("orders", outcomes)]))))
    assert found[ORDERS] == Produced(1000, 1_700_000_000_123, 3 if version >= 5 else -1)
    refused = found[TopicPartition("orders", 6)]
    assert isinstance(refused, MessageTooLarge)
    assert str(refused) == ("too big by far" if version >= 8 else str(MessageTooLarge()))
    assert found[TopicPartition("orders", 7)] == Produced()  # a batch that was there already is written


def test_an_answer_about_something_else_is_refused() -> None:
    body = b"".join(write_fetch(12, [("a", [FetchOutcome(0)]), ("b", [FetchOutcome(0)])]))
    with pytest.raises(ProtocolViolation):
        fetched(answer(FETCH, 12, body), FetchPosition(0))
