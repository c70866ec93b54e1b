"""Fetch by hand: the server reads what the client writes, and the client its response, in every version."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.record_batches import sample
from tests.unit.client.kafka.server_side import answer, conversation, read_by_the_server

from tidemill.client.kafka.apis import FETCH
from tidemill.client.kafka.fetch import FetchedBatches, FetchPosition, fetch_request, fetched
from tidemill.model.errors import NotLeaderOrFollower, TidemillError
from tidemill.model.topics import TopicPartition
from tidemill.records.build import build_batch
from tidemill.wire.kafka.fetch import FetchOutcome, FetchPartition, read_fetch, write_fetch

ORDERS = TopicPartition("orders", 5)
fetch_versions = pytest.mark.parametrize("version", range(FETCH.low, FETCH.high + 1))


@fetch_versions
def test_the_server_reads_the_fetch_that_was_meant(version: int) -> None:
    wanted = FetchPosition(offset=2**40, max_bytes=12345, committed=True, max_wait_ms=17, min_bytes=3)
    header, frame = read_by_the_server(conversation(FETCH, version), fetch_request(ORDERS, wanted))
    request = read_fetch(frame, header.body, version)
    assert request.topics == [("orders", [FetchPartition(5, -1, 2**40, 12345)])]
    assert (request.replica_id, request.max_wait_ms, request.min_bytes, request.max_bytes) == (-1, 17, 3, 12345)
    assert (request.committed, request.session_id, request.session_epoch, request.forgotten) == (True, 0, -1, [])


def fetch_answer(version: int, outcome: FetchOutcome) -> bytes:
    return b"".join(write_fetch(version, [("orders", [outcome])]))


@fetch_versions
def test_a_fetch_response_is_decoded(version: int) -> None:
    batches = build_batch(sample(3), base_offset=10) + build_batch(sample(2), base_offset=20)
    records = [bytes(batches), bytes(batches[:30])]  # the last batch is cut
    size = sum(map(len, records))
    outcome = FetchOutcome(5, 0, 100, 90, 7, [(4, 12), (5, 1)], records, size)
    found = fetched(answer(FETCH, version, fetch_answer(version, outcome)), FetchPosition(11))
    assert isinstance(found, FetchedBatches)
    assert bytes(found.records) == b"".join(records)
    assert found[1:] == (((4, 12), (5, 1)), 100, 90, 7 if version >= 5 else -1, 22)


@fetch_versions
def test_an_empty_fetch_stays_where_it_is(version: int) -> None:
    body = fetch_answer(version, FetchOutcome(5, 0, 100, 90, 7))
    found = fetched(answer(FETCH, version, body), FetchPosition(33))
    assert isinstance(found, FetchedBatches)
    assert (bytes(found.records), found.aborted, found.next_offset) == (b"", (), 33)


@fetch_versions
def test_an_error_of_the_partition_is_given(version: int) -> None:
    body = fetch_answer(version, FetchOutcome(5, NotLeaderOrFollower.code))
    assert isinstance(fetched(answer(FETCH, version, body), FetchPosition(0)), NotLeaderOrFollower)


@fetch_versions
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_damaged_answers_to_fetch_are_refused_and_nothing_worse(version: int, data: st.DataObject) -> None:
    batch = bytes(build_batch(sample(1)))
    body = bytearray(fetch_answer(version, FetchOutcome(5, 0, 100, 90, 7, [(4, 12)], [batch], len(batch))))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with suppress(TidemillError):
        fetched(answer(FETCH, version, bytes(body[: data.draw(st.integers(0, len(body)))])), FetchPosition(0))
