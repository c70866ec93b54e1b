"""Numbers, versions and headers of a talk with a broker."""

import pytest
from tests.unit.client.kafka.server_side import conversation, read_by_the_server

from tidemill.client.kafka import apis
from tidemill.client.kafka.apis import API_VERSIONS, LIST_OFFSETS, METADATA, OFFSET_COMMIT, ClientApi
from tidemill.client.kafka.errors import ClientError
from tidemill.client.kafka.protocol import OpenRequests, compose, plain, versions_in
from tidemill.model.errors import ProtocolViolation
from tidemill.wire.kafka.requests import read_body
from tidemill.wire.kafka.schema import request_class

ALL = [(name, api) for name, api in vars(apis).items() if isinstance(api, ClientApi)]
NUMBER_0 = b"\0\0\0\0"


@pytest.mark.parametrize("api", [api for _, api in ALL], ids=[name for name, _ in ALL])
def test_every_version_of_every_api_can_be_written_and_read_back(api: ClientApi) -> None:
    if api.key in {apis.PRODUCE.key, apis.FETCH.key}:
        return  # written by hand, and tested in the same way
    for version in range(api.low, api.high + 1):
        talk = conversation(api, version)
        header, frame = read_by_the_server(talk, plain(api, {}))
        assert (header.key, header.version, header.correlation, header.client_id) == (api.key, version, 0, "me")
        assert read_body(header, frame) == compose(request_class(api.key, version), {})


def test_nested_values_reach_the_server_in_every_version() -> None:
    entry = {"partition_index": 3, "committed_offset": 77, "committed_metadata": "m"}
    fields = {"group_id": "g", "topics": [{"name": "t", "partitions": [entry]}]}
    for version in range(OFFSET_COMMIT.low, OFFSET_COMMIT.high + 1):
        header, frame = read_by_the_server(conversation(OFFSET_COMMIT, version), plain(OFFSET_COMMIT, fields))
        request = read_body(header, frame)
        (topic,) = request.topics
        assert (request.group_id, topic.name, topic.partitions[0].committed_offset) == ("g", "t", 77)


def test_the_highest_version_that_both_know_is_spoken() -> None:
    talk = OpenRequests("me")
    talk.learn({METADATA.key: (0, 5), LIST_OFFSETS.key: (0, 99)})
    assert talk.version_of(METADATA) == 5
    assert talk.version_of(LIST_OFFSETS) == LIST_OFFSETS.high


def test_a_broker_that_is_too_old_or_too_new_gives_an_error_of_one_line() -> None:
    talk = OpenRequests("me")
    talk.learn({METADATA.key: (50, 60)})
    with pytest.raises(
        ClientError, match="Metadata: the broker supports versions 50 to 60, this client supports 1 to 12"
    ):
        talk.version_of(METADATA)
    with pytest.raises(ClientError, match="ListOffsets: the broker does not support it"):
        talk.version_of(LIST_OFFSETS)


def test_answers_belong_to_requests_in_order() -> None:
    talk = conversation(METADATA, 12)
    talk.learn({LIST_OFFSETS.key: (1, 1)})
    assert talk.ask(plain(METADATA, {}))[0] == 0
    assert talk.ask(plain(LIST_OFFSETS, {}))[0] == 1
    first = talk.parse(bytearray(NUMBER_0 + b"\0" + b"body"))
    second = talk.parse(bytearray(b"\0\0\0\x01body"))
    assert (first.number, first.api, first.version, bytes(first.body)) == (0, METADATA, 12, b"body")
    assert (second.number, second.api, bytes(second.body)) == (1, LIST_OFFSETS, b"body")


@pytest.mark.parametrize("frame", [b"", b"\0\0", b"\0\0\0\x07", NUMBER_0])
def test_frames_that_are_no_answer_are_refused(frame: bytes) -> None:
    talk = conversation(METADATA, 12)
    talk.ask(plain(METADATA, {}))
    with pytest.raises(ProtocolViolation):
        talk.parse(bytearray(frame))


def test_a_response_without_a_request_is_refused() -> None:
    with pytest.raises(ProtocolViolation, match="without a request"):
        OpenRequests("me").parse(bytearray(NUMBER_0))


def test_api_versions_is_asked_in_the_version_that_all_know() -> None:
    talk = OpenRequests("me")
    talk.ask(plain(API_VERSIONS, {}))
    reported = talk.parse(bytearray(NUMBER_0 + b"\0\0\0\0\0\x01\0\x03\0\0\0\x0c"))
    assert versions_in(reported) == {3: (0, 12)}
