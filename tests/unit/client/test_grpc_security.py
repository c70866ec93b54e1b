"""The settings of gRPC clients: what they mean, what is refused, and that no secret is shown."""

import base64
import json
import time
from pathlib import Path

import pytest
from tests.support.certificates import Authority

from tidemill.client.grpc_login import EARLY_S, OPAQUE_TOKEN_S, PasswordLogin, TokenLogin, lifetime_s, token_from
from tidemill.client.grpc_security import GrpcSecurity, parse_grpc_security
from tidemill.client.kafka.errors import AuthenticationFailed, InvalidClientOption

LOGIN = {"sasl.username": "ada", "sasl.password": "tea-time", "security.protocol": "SASL_SSL"}
SECURE = {**LOGIN, "sasl.mechanism": "SCRAM-SHA-256", "client.id": "shop", "acks": "all"}


@pytest.mark.parametrize("options", [None, {}, {"security.protocol": "plaintext"}, {"sasl.username": "unused"}])
def test_plain_by_default(options: dict[str, str] | None) -> None:
    assert parse_grpc_security(options) == GrpcSecurity()


async def test_a_password() -> None:
    made = parse_grpc_security(SECURE)
    assert made.tls is not None
    assert made.login is not None
    value = await made.login.value()
    assert base64.b64decode(value.removeprefix("Basic ")) == b"ada:tea-time"
    assert not made.login.renew(value)
    assert "tea-time" not in repr(made)
    assert value.removeprefix("Basic ") not in repr(made)


def test_a_login_in_the_syntax_of_java() -> None:
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="ada" password="tea";'
    made = parse_grpc_security({"security.protocol": "SASL_SSL", "sasl.jaas.config": jaas})
    assert isinstance(made.login, PasswordLogin)


async def test_a_token_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "my token"
    file.write_text("aaa\n")
    options = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
    }
    login = parse_grpc_security(options).login
    assert login is not None
    assert await login.value() == "Bearer aaa"
    file.write_text("bbb\n")
    assert await login.value() == "Bearer aaa"
    assert login.renew("Bearer aaa")
    assert await login.value() == "Bearer bbb"


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"security.protocol": "TLS"}, "security.protocol"),
        ({"security.protocol": "SASL_SSL"}, "sasl.username"),
        ({**LOGIN, "sasl.mechanism": "OAUTHBEARER"}, "file:///path"),
        (
            {**LOGIN, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://issuer/token"},
            "file:///path",
        ),
        ({**LOGIN, "enable.ssl.certificate.verification": "false"}, "always verifies"),
        ({**LOGIN, "ssl.endpoint.identification.algorithm": ""}, "always checks the name"),
        ({**LOGIN, "ssl.truststore.location": "store.jks"}, "PEM"),
        ({**LOGIN, "sasl.password": 7}, "must be a str"),
    ],
)
def test_wrong_settings_are_named(options: dict[str, str], word: str) -> None:
    with pytest.raises(InvalidClientOption, match=word) as caught:
        parse_grpc_security(options)
    assert "tea-time" not in str(caught.value)


def test_a_token_without_a_login_is_refused() -> None:
    with pytest.raises(InvalidClientOption, match="SASL_SSL"):
        parse_grpc_security({"security.protocol": "SSL"}, lambda: "aaa")


def test_a_password_is_not_sent_to_another_machine_without_encryption() -> None:
    plain = {**SECURE, "security.protocol": "SASL_PLAINTEXT"}
    made = parse_grpc_security(plain)
    made.check("127.0.0.1:6174")
    made.check("localhost:6174")
    with pytest.raises(InvalidClientOption, match="without encryption"):
        made.check("broker.example:6174")
    parse_grpc_security({**plain, "sasl.mechanism": "PLAIN"}).check("broker.example:6174")
    parse_grpc_security(SECURE).check("broker.example:6174")


def test_tls_files(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    mine = authority.issue("/CN=ada", "ada")
    options = {"security.protocol": "SSL", "ssl.ca.location": authority.path, "ssl.certificate.location": mine}
    assert parse_grpc_security(options).credentials() is not None
    texts = {"security.protocol": "SSL", "ssl.ca.pem": Path(authority.path).read_text()}
    assert parse_grpc_security(texts).credentials() is not None
    assert parse_grpc_security({}).credentials() is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ssl.ca.location", None),
        ("ssl.certificate.location", None),
        ("ssl.certificate.location", "no certificate"),
        ("ssl.key.location", "no key"),
    ],
)
def test_files_that_cannot_be_used_are_named(tmp_path: Path, name: str, text: str | None) -> None:
    authority = Authority(tmp_path)
    file = tmp_path / "file"
    if text is not None:
        file.write_text(text)
    options = {
        "security.protocol": "SSL",
        "ssl.ca.location": authority.path,
        "ssl.certificate.location": authority.issue("/CN=ada", "ada"),
        name: str(file),
    }
    with pytest.raises(InvalidClientOption, match="file" if text is None else "PEM"):
        parse_grpc_security(options).credentials()


def token(ends_s: float | str | None) -> str:
    payload = json.dumps({} if ends_s is None else {"exp": ends_s}).encode()
    return f"head.{base64.urlsafe_b64encode(payload).decode().rstrip('=')}.signature"


def test_a_token_is_fetched_again_before_its_end() -> None:
    assert lifetime_s(token(1_100), 1_000) == 100 - EARLY_S
    assert lifetime_s(token(1_010), 1_000) == 5
    assert lifetime_s(token(900), 1_000) == 0
    for opaque in ("opaque", "a.b.c", token(None), token("soon"), "..", "a.é.c"):
        assert lifetime_s(opaque, 1_000) == OPAQUE_TOKEN_S


async def test_a_token_is_fetched_once_for_many_calls() -> None:
    fetched: list[str] = []

    def fetch() -> str:
        fetched.append(token(time.time() + 3600))
        return fetched[-1]

    login = TokenLogin(fetch)
    assert login.newest == ""
    first = await login.value()
    assert await login.value() == first == login.newest
    assert len(fetched) == 1
    assert login.renew("Bearer of before")
    assert await login.value() == first
    assert login.renew(first)
    await login.value()
    assert len(fetched) == 2
    assert repr(login) == "TokenLogin()"


@pytest.mark.parametrize("text", ["", "two\nlines", "ümlaut", "x" * 20_000])
async def test_an_invalid_token_is_rejected_and_not_shown(text: str) -> None:
    with pytest.raises(AuthenticationFailed, match="not valid") as caught:
        await TokenLogin(lambda: text).value()
    assert not text or text not in str(caught.value)


async def test_a_token_that_cannot_be_fetched(tmp_path: Path) -> None:
    with pytest.raises(AuthenticationFailed, match="no token could be fetched"):
        await TokenLogin(token_from(str(tmp_path / "missing"))).value()
