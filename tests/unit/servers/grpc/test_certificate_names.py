"""The subject of a certificate is written as the Kafka listeners write it, so that a user has one name."""

import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.certificates import Authority

from tidemill.model.errors import SaslAuthenticationFailed
from tidemill.security.core.distinguished_name import distinguished_name
from tidemill.security.core.principal import user
from tidemill.servers.grpc.certificate_names import CertificateNames, subject_of


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def pem_of(file: str) -> bytes:
    return Path(file).read_bytes().partition(b"-----BEGIN PRIVATE")[0].partition(b"-----BEGIN EC")[0]


def context_of(*pems: bytes) -> Any:
    return SimpleNamespace(auth_context=lambda: {"x509_pem_cert": list(pems)} if pems else {})


@pytest.mark.parametrize(
    "subject",
    [
        "/CN=alice",
        "/O=Shop/CN=alice",
        '/C=DE/ST=Berlin/L=Berlin/O=Shop, Inc/OU=R+D/CN=al"ice',
        "/DC=example/DC=shop/UID=7/CN=#tea",
        "/emailAddress=ada@shop.example/CN= spaced ",
        "/street=Main St 1/CN=zoë",
        "/serialNumber=5/title=Dr/surname=B/givenName=Bob/initials=B/generationQualifier=Jr/dnQualifier=1/CN=bob",
        "/pseudonym=x/businessCategory=Shop/postalCode=1/organizationIdentifier=2/unstructuredName=y/CN=bob",
        "/jurisdictionC=DE/jurisdictionL=Berlin/jurisdictionST=Berlin/postalAddress=Main St/CN=bob",
    ],
)
def test_the_subject_is_that_of_kafka_listeners(authority: Authority, subject: str, tmp_path: Path) -> None:
    file = authority.issue(subject, f"c{abs(hash(subject))}")
    alone = tmp_path / "alone.pem"
    alone.write_bytes(pem_of(file))
    decoded: dict[str, Any] = ssl._ssl._test_decode_cert(str(alone))  # type: ignore[attr-defined] # as getpeercert()
    assert subject_of(pem_of(file)) == distinguished_name(decoded["subject"])


def test_rules_make_the_name(authority: Authority) -> None:
    pem = pem_of(authority.issue("/O=Shop/CN=Ada", "ada"))
    names = CertificateNames("RULE:CN=([^,]+),O=Shop/$1/L")
    assert names.principal(context_of(pem)) == user("ada")
    assert names.principal(context_of(pem)) == user("ada")
    with pytest.raises(SaslAuthenticationFailed, match="no rule"):
        names.principal(context_of(pem_of(authority.issue("/O=Other/CN=Ada", "other"))))


def test_without_a_certificate_there_is_no_name() -> None:
    with pytest.raises(SaslAuthenticationFailed, match="no client certificate"):
        CertificateNames("DEFAULT").principal(context_of())
