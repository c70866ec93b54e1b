"""Bodies that are not what the HTTP API takes, and clients that leave, against a real broker."""

import json
import logging
import socket
import time
from collections.abc import Iterator, Sequence

import pytest

from tidemill.model.addresses import Address, parse_address
from tidemill.servers.http.api.api_call import BODY_BYTES_MAX
from tidemill.testing import Broker

WAIT_S = 60.0
JSON = "content-type: application/json"
BAD_BODIES = {
    "number": b'{"query": 1}',
    "null": b'{"query": null}',
    "list as sql": b'{"query": ["SELECT 1"]}',
    "list": b"[]",
    "empty": b"",
    "text": b'"SELECT 1"',
    "not JSON": b"SELECT 1",
    "not UTF-8": b'{"query": "\xff\xfe"}',
    "half a character": b'{"query": "\\ud800"}',
    "NaN": b'{"query": NaN}',
    "NaN as format": b'{"query": "SELECT 1", "format": NaN}',
    "list as format": b'{"query": "SELECT 1", "format": []}',
    "object as format": b'{"query": "SELECT 1", "format": {}}',
    "unknown format": b'{"query": "SELECT 1", "format": "xml"}',
    "deep": b'{"query": ' + b"[" * 100_000,
    "deep and closed": b'{"query": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "long number": b'{"query": ' + b"9" * 100_000 + b"}",
    "large": b'{"query": "' + b"x" * 600_000 + b'"}',
    "NUL": b"\0" * 100,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def address(broker: Broker) -> Address:
    return parse_address(broker.http.removeprefix("http://"))


def ask(broker: Broker, line: str, headers: Sequence[str], body: bytes = b"") -> tuple[int, str]:
    """Status and body of one request with exactly these headers."""
    head = "".join(f"{each}\r\n" for each in (line, *headers, "connection: close", f"content-length: {len(body)}"))
    with socket.create_connection(address(broker), timeout=WAIT_S) as connection:
        connection.sendall(head.encode() + b"\r\n" + body)
        found = b""
        while piece := connection.recv(65536):
            found += piece
    head_text, _, answer = found.partition(b"\r\n\r\n")
    return int(head_text.split(b" ", 2)[1]), answer.decode()


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_a_form_of_another_site_asks_nothing(broker: Broker, kind: str) -> None:
    headers = ["host: localhost", *([f"content-type: {kind}"] if kind else [])]
    status, _ = ask(broker, "POST /api/v1/sql HTTP/1.1", headers, b'{"query": "SELECT 1"}')
    assert status == 415


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES)
def test_a_body_that_is_no_question_is_a_bad_request(broker: Broker, body: bytes) -> None:
    status, answer = ask(broker, "POST /api/v1/sql HTTP/1.1", ["host: localhost", JSON], body)
    assert status == (413 if len(body) > BODY_BYTES_MAX else 400)
    assert len(json.loads(answer)["error"].splitlines()) == 1


def test_a_client_that_leaves_is_no_failure(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    begun = b"POST /api/v1/sql HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    for request in (
        b"GET /metri",
        begun,
        begun + b"content-length: 100\r\n\r\n{",
        begun + b"transfer-encoding: chunked\r\n\r\n5\r\n{",
        begun + b'content-length: 21\r\n\r\n{"query": "SELECT 1"}',
        b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n" * 20,
    ):
        for abort in (False, True):
            connection = socket.create_connection(address(broker), timeout=WAIT_S)
            connection.sendall(request)
            if abort:  # a reset instead of an orderly end
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.close()
    deadline = time.monotonic() + WAIT_S
    while ask(broker, "GET /health/live HTTP/1.1", ["host: localhost"])[0] != 200:
        assert time.monotonic() < deadline
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []
