"""Options in Kafka's spelling."""

from pathlib import Path

import pytest
from tests.support.etcd import Certificates

from tidemill.client.kafka.errors import InvalidClientOption
from tidemill.client.kafka.options import (
    LOGIN_NAMES,
    PATIENCE_NAMES,
    REFUSED,
    ClientOptions,
    Credentials,
    TlsOptions,
    parse_options,
)
from tidemill.client.kafka.tls import tls_context
from tidemill.client.kafka.topology import BrokerEndpoint

SERVERS = {"bootstrap.servers": "a:1"}
SASL = {**SERVERS, "security.protocol": "SASL_PLAINTEXT"}
TLS = {**SERVERS, "security.protocol": "SSL"}


def test_only_the_address_is_needed() -> None:
    assert parse_options(SERVERS) == ClientOptions((BrokerEndpoint("a", 1),))


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1, b:2,", (("a", 1), ("b", 2))),
        ("[::1]:9092", (("::1", 9092),)),
        ("PLAINTEXT://a:9092", (("a", 9092),)),
    ],
)
def test_addresses_come_in_several_forms(text: str, addresses: tuple[tuple[str, int], ...]) -> None:
    assert parse_options({"bootstrap.servers": text}).bootstrap == addresses


def test_times_can_be_set_and_other_names_are_left_alone() -> None:
    given = {**SERVERS, "request.timeout.ms": "5", "default.api.timeout.ms": "6", "client.id": "me", "linger.ms": "9"}
    options = parse_options(given)
    assert (options.request_timeout_ms, options.api_timeout_ms, options.client_id) == (5, 6, "me")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_credentials_come_by_name_or_in_javas_form(mechanism: str) -> None:
    plain = {"sasl.mechanisms": mechanism, "sasl.username": "u", "sasl.password": "p=1;"}
    login = 'x.ScramLoginModule required username="u" password="p=1;";'
    java = {"sasl.mechanism": mechanism, "sasl.jaas.config": login}
    for form in (plain, java):
        options = parse_options({**SASL, **form})
        assert options.credentials == Credentials(mechanism, "u", "p=1;")
        assert "p=1" not in repr(options)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("secret", "secret"),
        ("'it is'", "it is"),
        (r'"a \"b\" \\ c"', r'a "b" \ c'),
        ('"\'"', "'"),
        ('""', ""),
    ],
)
def test_passwords_of_java_are_read_with_their_quotes(written: str, meant: str) -> None:
    login = f"org.apache.kafka.common.security.plain.PlainLoginModule required\n username=u\n password={written};"
    options = parse_options({**SASL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": login})
    assert options.credentials == Credentials("PLAIN", "u", meant)


def test_certificates_come_as_text_too() -> None:
    ssl = {**SERVERS, "security.protocol": "ssl"}
    java = {"ssl.truststore.certificates": "CA", "ssl.keystore.certificate.chain": "ME", "ssl.keystore.key": "KEY"}
    rust = {"ssl.ca.pem": "CA", "ssl.certificate.pem": "ME", "ssl.key.pem": "KEY"}
    for form in (java, rust):
        options = parse_options({**ssl, **form, "ssl.key.password": "hidden"})
        assert options.tls == TlsOptions(ca_pem="CA", certificate_pem="ME", key_pem="KEY", key_password="hidden")
        assert "KEY" not in repr(options)
        assert "hidden" not in repr(options)


def test_a_pem_store_of_java_has_certificate_and_key() -> None:
    given = {**SERVERS, "security.protocol": "SSL", "ssl.keystore.location": "/me.pem", "ssl.keystore.type": "PEM"}
    assert parse_options(given).tls == TlsOptions(certificate_file="/me.pem")


def test_tls_files_are_named_as_in_librdkafka_or_java() -> None:
    ssl = {**SERVERS, "security.protocol": "ssl"}
    assert parse_options({**ssl, "ssl.ca.location": "/ca.pem"}).tls == TlsOptions(ca_file="/ca.pem")
    java = {"ssl.truststore.location": "/ca.pem", "ssl.truststore.type": "PEM"}
    named = {"ssl.endpoint.identification.algorithm": ""}
    assert parse_options({**ssl, **java, **named}).tls == TlsOptions(ca_file="/ca.pem", check_name=False)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({}, "bootstrap.servers is missing; set it to host:port"),
        ({"bootstrap.servers": " ,"}, "bootstrap.servers is empty"),
        ({"bootstrap.servers": "a"}, "bootstrap.servers: 'a' is not host:port"),
        ({"bootstrap.servers": "a:0"}, "'a:0' is not host:port"),
        ({**SERVERS, "security.protocol": "TLS"}, "security.protocol: TLS is not one of PLAINTEXT, SSL"),
        ({**SERVERS, "request.timeout.ms": "soon"}, "request.timeout.ms: 'soon' is not a number of milliseconds"),
        ({**SASL, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism: GSSAPI is not one of PLAIN, SCRAM-SHA-256"),
        ({**SASL, "sasl.mechanism": "GSSAPI"}, "; Kerberos is not supported"),
        ({**SASL, "sasl.mechanism": "AWS_MSK_IAM"}, "; AWS tokens are not supported"),
        ({**SASL, "sasl.client.callback.handler.class": "x.Y"}, "Java classes are not supported; use PLAIN or SCRAM"),
        (SASL, "sasl.mechanism is missing; set it to one of PLAIN, SCRAM-SHA-256"),
        ({**SASL, "sasl.mechanism": "PLAIN"}, "the SASL login is missing; set sasl.username and sasl.password, or"),
        (
            {**SASL, "sasl.mechanism": "PLAIN", "sasl.jaas.config": "com.sun.Krb5LoginModule required;"},
            "sasl.jaas.config: Krb5LoginModule is not one of PlainLoginModule, ScramLoginModule; write",
        ),
        ({**TLS, "ssl.keystore.location": "x.JKS"}, "ssl.keystore.location: x.JKS is a Java store.* openssl pkcs12"),
        (
            {**TLS, "ssl.keystore.type": "PKCS12"},
            "ssl.keystore.type: PKCS12 is a Java store, and only PEM is supported",
        ),
        (
            {**TLS, "ssl.truststore.location": "x.jks"},
            "ssl.truststore.location: x.jks is a Java store.* set ssl.ca.location, created with: keytool -list -rfc",
        ),
    ],
)
def test_a_wrong_or_unsupported_option_is_named(options: dict[str, str], line: str) -> None:
    with pytest.raises(InvalidClientOption, match=line):
        parse_options(options)


def test_tls_files_that_are_not_there_are_named() -> None:
    with pytest.raises(InvalidClientOption, match=r"the TLS files /nowhere/ca.pem cannot be used: no such file"):
        tls_context(TlsOptions(ca_file="/nowhere/ca.pem"))


def test_texts_that_are_no_certificates_are_refused() -> None:
    with pytest.raises(
        InvalidClientOption, match=r"the PEM texts of the TLS options cannot be used: .*; they must be PEM"
    ):
        tls_context(TlsOptions(ca_pem="nonsense"))
    with pytest.raises(InvalidClientOption, match=r"the PEM texts of the TLS options cannot be used"):
        tls_context(TlsOptions(certificate_pem="nonsense", key_pem="nonsense"))


def test_a_certificate_as_text_is_as_good_as_its_file(tmp_path: Path) -> None:
    ours = Certificates(tmp_path)
    tls_context(
        TlsOptions(certificate_pem=ours.cert.read_text(), key_pem=ours.key.read_text(), ca_pem=ours.ca.read_text())
    )
    tls_context(TlsOptions(certificate_file=str(ours.cert), key_file=str(ours.key), ca_file=str(ours.ca)))
    with pytest.raises(InvalidClientOption, match="cannot be used"):
        tls_context(TlsOptions(certificate_pem=ours.cert.read_text()))


def test_a_name_is_checked_unless_that_is_switched_off() -> None:
    assert tls_context(TlsOptions()).check_hostname
    assert not tls_context(TlsOptions(check_name=False)).check_hostname
    assert not tls_context(TlsOptions(verify=False)).check_hostname


def test_the_names_that_are_understood_are_those_that_are_read() -> None:
    """Commands refuse all others."""
    asked: set[str] = set()

    class Asked(dict[str, str]):
        def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override] # it is for one test
            asked.add(key)
            return super().get(key, default)

    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"}
    parse_options(Asked({"bootstrap.servers": "h:1", **login}))
    assert asked == LOGIN_NAMES | PATIENCE_NAMES
    assert not asked & set(REFUSED)
