"""Keys of a token issuer: signatures, changed keys, unreachable issuers, documents that are not keys."""

import base64
import hashlib
import hmac
import http.server
import json
import threading
from pathlib import Path
from typing import Any

import jwt
import pytest
from tests.support.tokens import Issuer

from tidemill.model.errors import InvalidConfig
from tidemill.security.core.oauth import TokenRejected, check_keys_url
from tidemill.security.token_keys import DOCUMENT_BYTES_MAX, KEYS_MAX, RETRY_S, TokenKeys, parse_keys, read_keys

URL = "https://issuer.example/keys"


class Source:
    """A document that a test changes, and how often it was read."""

    def __init__(self, document: bytes) -> None:
        self.document = document
        self.count = 0
        self.error: OSError | None = None

    def read(self, _: str) -> bytes:
        self.count += 1
        if self.error is not None:
            raise self.error
        return self.document


class Ticker:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer("first", "second")


def keys_of(source: Source, ticker: Ticker, refresh_s: float = 3600.0) -> TokenKeys:
    return TokenKeys(URL, refresh_s, ticker, source.read)


async def test_signed_tokens_are_accepted_by_every_key(issuer: Issuer) -> None:
    keys = keys_of(Source(issuer.document()), Ticker())
    for key_id in ("first", "second"):
        for algorithm in ("RS256", "RS512", "PS256"):
            token = issuer.token("alice", key_id=key_id, algorithm=algorithm)
            assert (await keys.claims(token))["sub"] == "alice"


async def test_another_key_is_refused(issuer: Issuer) -> None:
    keys = keys_of(Source(issuer.document()), Ticker())
    with pytest.raises(TokenRejected, match="signature"):
        await keys.claims(Issuer("first").token("alice"))


async def test_a_changed_payload_is_refused(issuer: Issuer) -> None:
    keys = keys_of(Source(issuer.document()), Ticker())
    head, _, signature = issuer.token("alice").split(".")
    forged = base64.urlsafe_b64encode(json.dumps({"sub": "admin", "exp": 9_999_999_999}).encode()).decode().rstrip("=")
    with pytest.raises(TokenRejected, match="signature"):
        await keys.claims(f"{head}.{forged}.{signature}")


async def test_a_public_key_as_an_hmac_secret_is_refused(issuer: Issuer) -> None:
    keys = keys_of(Source(issuer.document()), Ticker())
    parts = [
        base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=")
        for each in ({"alg": "HS256", "kid": "first"}, {"sub": "admin", "exp": 9_999_999_999})
    ]
    signature = hmac.digest(issuer.public_pem("first"), ".".join(parts).encode(), hashlib.sha256)
    token = ".".join([*parts, base64.urlsafe_b64encode(signature).decode().rstrip("=")])
    with pytest.raises(TokenRejected, match="algorithm"):
        await keys.claims(token)
    with pytest.raises(TokenRejected, match="algorithm"):
        await keys.claims(jwt.encode({"sub": "admin"}, "", "none"))


async def test_an_unknown_key_id_reads_the_keys_again_but_not_often(issuer: Issuer) -> None:
    source, ticker = Source(issuer.document()), Ticker()
    keys = keys_of(source, ticker)
    fresh = Issuer("third")
    for _ in range(20):
        with pytest.raises(TokenRejected, match="key id"):
            await keys.claims(fresh.token("alice"))
    assert source.count == 1
    source.document = fresh.document()
    ticker.now_s += RETRY_S
    assert (await keys.claims(fresh.token("alice")))["sub"] == "alice"
    assert source.count == 2
    with pytest.raises(TokenRejected):
        await keys.claims(issuer.token("alice"))


async def test_keys_stay_in_use_while_the_issuer_does_not_answer(issuer: Issuer) -> None:
    source, ticker = Source(issuer.document()), Ticker()
    keys = keys_of(source, ticker, refresh_s=60.0)
    await keys.claims(issuer.token("alice"))
    source.error = OSError("no route")
    ticker.now_s += 61
    assert (await keys.claims(issuer.token("alice")))["sub"] == "alice"
    assert source.count == 2


async def test_without_keys_no_token_is_accepted(issuer: Issuer) -> None:
    source = Source(b"<html>")
    with pytest.raises(TokenRejected):
        await keys_of(source, Ticker()).claims(issuer.token("alice"))


@pytest.mark.parametrize(
    "document",
    [b"", b"[]", b"{}", b'{"keys": 1}', b"\xff", json.dumps({"keys": [{}] * (KEYS_MAX + 1)}).encode()],
)
def test_documents_that_are_no_keys(document: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 -- json, encoding and our own checks
        parse_keys(document)


@pytest.mark.parametrize(
    "key", [1, None, {}, {"kty": "oct", "k": "c2VjcmV0"}, {"kty": "RSA", "n": "!", "e": "!"}, {"kty": []}]
)
def test_keys_of_other_kinds_are_left_out(key: Any) -> None:
    assert parse_keys(json.dumps({"keys": [key]}).encode()) == []


def test_encryption_keys_are_left_out(issuer: Issuer) -> None:
    document = json.loads(issuer.document())
    document["keys"][0]["use"] = "enc"
    assert [key.key_id for key in parse_keys(json.dumps(document).encode())] == ["second"]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "keys.json",
        "http://issuer.example/keys",
        "file://host/keys",
        "ftp://127.0.0.1/keys",
        "https:///keys",
        "jar:x",
    ],
)
def test_unsafe_addresses_are_refused(url: str) -> None:
    with pytest.raises(InvalidConfig, match=r"jwks\.endpoint\.url"):
        check_keys_url(url)


def test_an_address_in_an_error_has_no_password() -> None:
    with pytest.raises(InvalidConfig) as caught:
        check_keys_url("http://user:secret@issuer.example/keys?token=hidden")
    assert "secret" not in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_a_document_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(b" " * (DOCUMENT_BYTES_MAX + 1))
    with pytest.raises(ValueError, match="larger"):
        read_keys(path.as_uri())


class _Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/keys")
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: Any) -> None:
        pass


def test_redirects_are_not_followed() -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        try:
            assert read_keys(f"{address}/keys") == b"{}"
            with pytest.raises(OSError, match="302"):
                read_keys(f"{address}/moved")
        finally:
            server.shutdown()
            thread.join()
