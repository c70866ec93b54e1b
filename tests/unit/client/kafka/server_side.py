"""Parses requests as the Kafka server does, and writes its responses."""

from typing import Any

from tidemill.client.kafka.apis import ClientApi
from tidemill.client.kafka.protocol import Answer, OpenRequests, Request
from tidemill.wire.kafka.requests import Header, is_flexible, read_header
from tidemill.wire.kafka.schema import response_class
from tidemill.wire.kafka.writer import message_writer


def conversation(api: ClientApi, version: int) -> OpenRequests:
    """A conversation with a broker that supports exactly this version."""
    talk = OpenRequests("me")
    talk.learn({api.key: (version, version)})
    return talk


def read_by_the_server(talk: OpenRequests, request: Request) -> tuple[Header, bytes]:
    """The header as the server parses it, and the whole frame."""
    _, buffers = talk.ask(request)
    sent = b"".join(buffers)
    assert int.from_bytes(sent[:4], "big") == len(sent) - 4
    frame = sent[4:]
    version = int.from_bytes(frame[2:4], "big")
    return read_header(frame, flexible=is_flexible(request.api.key, version)), frame


def answer(api: ClientApi, version: int, body: bytes) -> Answer:
    """A response with this body."""
    return Answer(0, api, version, memoryview(body))


def written(api: ClientApi, version: int, message: Any) -> Answer:
    """A response with kio's object as its body."""
    body = bytearray()
    message_writer(response_class(api.key, version))(body, message)
    return answer(api, version, bytes(body))
