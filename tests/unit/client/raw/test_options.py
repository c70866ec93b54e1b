"""Options in Kafka's spelling."""

import pytest

from tidemill.client.raw.connection import tls_context
from tidemill.client.raw.errors import InvalidOption
from tidemill.client.raw.options import ClientOptions, Credentials, Tls, parse_options
from tidemill.client.raw.topology import Address

SERVERS = {"bootstrap.servers": "a:1"}
SASL = {**SERVERS, "security.protocol": "SASL_PLAINTEXT"}


def test_only_the_address_is_needed() -> None:
    assert parse_options(SERVERS) == ClientOptions((Address("a", 1),))


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
    java = {"sasl.mechanism": mechanism, "sasl.jaas.config": 'x.Module required username="u" password="p=1;";'}
    for form in (plain, java):
        options = parse_options({**SASL, **form})
        assert options.credentials == Credentials(mechanism, "u", "p=1;")
        assert "p=1" not in repr(options)


def test_tls_files_are_named_as_in_librdkafka_or_java() -> None:
    ssl = {**SERVERS, "security.protocol": "ssl"}
    assert parse_options({**ssl, "ssl.ca.location": "/ca.pem"}).tls == Tls(ca_file="/ca.pem")
    java = {"ssl.truststore.location": "/ca.pem", "ssl.truststore.type": "PEM"}
    named = {"ssl.endpoint.identification.algorithm": ""}
    assert parse_options({**ssl, **java, **named}).tls == Tls(ca_file="/ca.pem", check_name=False)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({}, "bootstrap.servers is missing: give host:port"),
        ({"bootstrap.servers": " ,"}, "bootstrap.servers is empty"),
        ({"bootstrap.servers": "a"}, "bootstrap.servers: 'a' is not host:port"),
        ({"bootstrap.servers": "a:0"}, "'a:0' is not host:port"),
        ({**SERVERS, "security.protocol": "TLS"}, "security.protocol: TLS is none of PLAINTEXT, SSL"),
        ({**SERVERS, "request.timeout.ms": "soon"}, "request.timeout.ms: 'soon' is not a number of milliseconds"),
        ({**SASL, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism: GSSAPI is none of PLAIN, SCRAM-SHA-256"),
        (SASL, "sasl.mechanism: nothing is none of PLAIN"),
        ({**SASL, "sasl.mechanism": "PLAIN"}, "sasl.username and sasl.password .* are missing"),
        ({**SERVERS, "ssl.keystore.location": "x.jks"}, "ssl.keystore.location: give PEM files"),
        (
            {**SERVERS, "security.protocol": "SSL", "ssl.truststore.location": "x.jks"},
            "ssl.truststore.location: Java's stores are not supported; give ssl.ca.location",
        ),
    ],
)
def test_what_is_wrong_or_not_supported_is_named(options: dict[str, str], line: str) -> None:
    with pytest.raises(InvalidOption, match=line):
        parse_options(options)


def test_tls_files_that_are_not_there_are_named() -> None:
    with pytest.raises(InvalidOption, match=r"the TLS files /nowhere/ca.pem cannot be used: no such file"):
        tls_context(Tls(ca_file="/nowhere/ca.pem"))


def test_a_name_is_checked_unless_that_is_switched_off() -> None:
    assert tls_context(Tls()).check_hostname
    assert not tls_context(Tls(check_name=False)).check_hostname
    assert not tls_context(Tls(verify=False)).check_hostname
