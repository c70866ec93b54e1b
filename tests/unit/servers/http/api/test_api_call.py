"""Paths, queries and bodies of the API: what is decoded, and what is refused."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from tidemill.servers.http.api.api_call import (
    BODY_BYTES_MAX,
    QUERY_FIELDS_MAX,
    ApiCall,
    EncodedPath,
    decode_body,
    decode_query,
)
from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.wire.http.document import PageQuery
from tidemill.wire.http.topics import NewTopicInput

JSON_HEADERS = [(b"content-type", b"application/json; charset=utf-8")]


def scope_of(raw_path: bytes, query: bytes = b"", headers: Sequence[tuple[bytes, bytes]] = ()) -> Scope:
    return {
        "type": "http",
        "method": "GET",
        "path": "",
        "raw_path": raw_path,
        "query_string": query,
        "headers": list(headers),
        "path_params": {},
    }


async def normalized(raw_path: bytes) -> str:
    seen: list[str] = []

    async def app(scope: Scope, _: Receive, __: Send) -> None:
        seen.append(scope["path"])

    async def nothing(*_: Any) -> Any:
        return None

    await EncodedPath(app)(scope_of(raw_path), nothing, nothing)
    return seen[0]


def request_with(body: Sequence[bytes], headers: Sequence[tuple[bytes, bytes]] = JSON_HEADERS) -> Request:
    messages: list[Message] = [{"type": "http.request", "body": each, "more_body": True} for each in body]
    messages.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> Message:
        return messages.pop(0)

    return Request(scope_of(b"/", headers=headers), receive)


class Sample(msgspec.Struct, forbid_unknown_fields=True):
    count: int


@given(st.text(min_size=1).filter(lambda text: text.isprintable() and not any(0xD800 <= ord(c) < 0xE000 for c in text)))
def test_a_name_with_any_characters_is_one_segment(name: str) -> None:
    encoded = "".join(f"%{byte:02X}" for byte in name.encode())
    path = asyncio.run(normalized(f"/api/v1/groups/{encoded}/members".encode()))
    before, found, after = path.rpartition("/")[0].partition("/api/v1/groups/")[0], path.split("/")[4], path.split("/")
    assert (before, after[-1], len(after)) == ("", "members", 6)
    request = Request({**scope_of(b"/"), "path_params": {"name": found}})
    assert ApiCall(request, None, None, None).name() == name  # type: ignore[arg-type] # no client is needed


@pytest.mark.parametrize("raw", [b"/a%2Fb", b"/a%2fb"])
async def test_an_encoded_slash_stays_encoded(raw: bytes) -> None:
    assert await normalized(raw) == "/a%2Fb"


async def test_a_path_that_is_not_utf_8_is_replaced_and_matches_no_name() -> None:
    assert await normalized(b"/topics/%FF") == "/topics/%EF%BF%BD"


async def test_a_dot_segment_is_a_name() -> None:
    assert await normalized(b"/api/../topics") == "/api/../topics"


def test_a_query_is_converted_and_has_defaults() -> None:
    found = decode_query(Request(scope_of(b"/", b"page=3&descending=true&search=a%20b")), PageQuery)
    assert found == PageQuery(page=3, descending=True, search="a b")


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (b"page=0", ">= 1"),
        (b"page=x", "expected `int`"),
        (b"rows=501", "<= 500"),
        (b"nothing=1", "unknown field `nothing`"),
        (b"page=1&page=2", "a field is twice"),
        (b"search=%FF", "not valid"),
        (b"search=" + b"x" * 250, "<= 249"),
        (b"&".join(b"a%d=1" % number for number in range(QUERY_FIELDS_MAX + 1)), "not valid"),
    ],
)
def test_a_query_that_is_not_valid_is_refused(query: bytes, reason: str) -> None:
    with pytest.raises(ApiProblem, match=reason) as caught:
        decode_query(Request(scope_of(b"/", query)), PageQuery)
    assert caught.value.status == 400


async def test_a_body_arrives_in_parts() -> None:
    assert await decode_body(request_with([b'{"cou', b'nt": 3}']), Sample) == Sample(3)


@pytest.mark.parametrize(
    ("body", "headers", "status", "reason"),
    [
        (b'{"count": 3}', [], 415, "application/json"),
        (b'{"count": 3}', [(b"content-type", b"text/plain")], 415, "application/json"),
        (b'{"count": "3"}', JSON_HEADERS, 400, "expected `int`"),
        (b'{"count": 3, "more": 1}', JSON_HEADERS, 400, "unknown field `more`"),
        (b"{", JSON_HEADERS, 400, "not JSON"),
        (b"", JSON_HEADERS, 400, "not JSON"),
        (b'{"count": "\xff"}', JSON_HEADERS, 400, "not"),
        (b"[" * 100_000, JSON_HEADERS, 400, "not"),
        (b" " * (BODY_BYTES_MAX + 1), JSON_HEADERS, 413, str(BODY_BYTES_MAX)),
    ],
)
async def test_a_body_that_is_not_valid_is_refused(
    body: bytes, headers: list[tuple[bytes, bytes]], status: int, reason: str
) -> None:
    with pytest.raises(ApiProblem, match=reason) as caught:
        await decode_body(request_with([body], headers), Sample)
    assert caught.value.status == status


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"topic": 1}', "topic"),
        (b'{"topic": "x", "config": {"retention.ms": 1}}', "config"),
        (b'{"topic": "x", "partition": 1}', ""),
        (b"{", ""),
    ],
)
async def test_a_refused_body_names_its_field(body: bytes, field: str) -> None:
    with pytest.raises(ApiProblem) as caught:
        await decode_body(request_with([body]), NewTopicInput)
    assert caught.value.field == field


async def test_a_client_that_leaves_halfway_changes_nothing() -> None:
    messages: list[Message] = [
        {"type": "http.request", "body": b'{"count":', "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Message:
        return messages.pop(0)

    with pytest.raises(ApiProblem, match="disconnected"):
        await decode_body(Request(scope_of(b"/", headers=JSON_HEADERS), receive), Sample)
