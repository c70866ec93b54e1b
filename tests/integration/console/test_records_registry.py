"""Avro and Protobuf in the records of a topic, with a registry that answers as Confluent's does, or does not answer."""

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from markupsafe import escape

from tidemill.testing import Broker

WAIT_S = 30.0
AVRO, PROTOBUF, UNKNOWN, BROKEN, REFERRING = 1, 2, 3, 4, 5
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "total", "type": "long"}, {"name": "city", "type": "string"}],
}
ANSWERS: dict[int, tuple[int, Any]] = {
    AVRO: (200, {"schema": json.dumps(ORDER)}),
    PROTOBUF: (200, {"schemaType": "PROTOBUF", "schema": 'syntax = "proto3";'}),
    BROKEN: (500, {"error_code": 50001}),
    REFERRING: (200, {"schema": json.dumps(ORDER), "references": [{"name": "x"}]}),
}
LOGIN = "user:pass word"
CITY = "<b>Oslo</b>"


def framed(schema_id: int, data: bytes) -> bytes:
    """Data as clients of a registry write it."""
    return b"\x00" + schema_id.to_bytes(4, "big") + data


def avro_order(total: int, city: str) -> bytes:
    text = city.encode()
    return framed(AVRO, bytes([2 * total, 2 * len(text)]) + text)


class RegistryStub:
    """A registry that counts the requests for each schema."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.logins: set[str | None] = set()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                schema_id = int(self.path.rpartition("/")[2])
                stub.asked.append(schema_id)
                stub.logins.add(self.headers["authorization"])
                status, document = ANSWERS.get(schema_id, (404, {"error_code": 40403}))
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def with_records(url: str, *values: bytes) -> Iterator[httpx.Client]:
    """A console of a broker that has this registry, and a topic `coded` with these values."""
    with Broker(settings={"tidemill.registry.url": url}) as broker:
        options = {"bootstrap.servers": broker.bootstrap_servers}
        admin = AdminClient(options)
        admin.create_topics([NewTopic("coded", 1, 1)])["coded"].result(WAIT_S)
        writer = Producer(options)
        for value in values:
            writer.produce("coded", value, "k", 0)
        assert writer.flush(WAIT_S) == 0
        with httpx.Client(base_url=broker.http, timeout=WAIT_S, headers={"accept": "text/html"}) as console:
            yield console


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryStub]:
    running = RegistryStub()
    yield running
    running.stop()


def test_records_are_decoded_by_the_schemas_of_a_registry(registry: RegistryStub) -> None:
    values = (
        avro_order(7, CITY),
        avro_order(20, "Bergen"),
        framed(PROTOBUF, b"\x00\x08\x2a\x12\x02hi"),
        framed(UNKNOWN, b"x"),
        framed(BROKEN, b"x"),
        framed(REFERRING, b"x"),
        framed(AVRO, b"\x0e\x7f"),
    )
    with with_records(f"http://user:pass%20word@{registry.address}", *values) as console:
        pages = [console.get(f"/topics/coded/records/0/{offset}").text for offset in range(len(values))]
        assert "avro of schema 1" in pages[0]
        assert escape(f'"city": "{CITY}"') in pages[0]
        assert CITY not in pages[0]
        assert "protobuf of schema 2" in pages[2]
        assert escape('"2": "hi"') in pages[2]
        assert "Fields are shown by number" in pages[2]
        assert "00 00 00 00 03 78" in pages[3]
        assert "the registry answers 500" in pages[4]
        assert "it refers to other schemas" in pages[5]
        assert "Schema 1 does not decode it" in pages[6]
        assert "avro of schema" in console.get("/topics/coded/records/0/0?value_format=avro").text
        path = "/api/v1/topics/coded/records"
        found = console.get(path, params={"where": "$.total > 10 and $.city = 'Bergen'"}).json()["records"]
        assert [each["offset"] for each in found] == [1]
    assert registry.asked.count(AVRO) == 1
    assert registry.asked.count(UNKNOWN) == 1
    assert registry.logins == {f"Basic {b64encode(LOGIN.encode()).decode()}"}


def test_records_are_shown_while_the_registry_does_not_answer() -> None:
    stopped = RegistryStub()
    stopped.stop()
    with with_records(f"http://{stopped.address}", avro_order(7, "Oslo"), b"plain") as console:
        page = console.get("/topics/coded/records/0/0")
        assert page.status_code == 200
        assert "the schema registry does not answer" in page.text
        assert "00 00 00 00 01 0e 08 4f 73 6c 6f" in page.text
        assert "plain" in console.get("/topics/coded/records").text


def test_avro_without_a_registry_says_what_to_set() -> None:
    with with_records("", avro_order(7, "Oslo")) as console:
        page = console.get("/topics/coded/records/0/0", params={"value_format": "avro"})
        assert "set tidemill.registry.url" in page.text
