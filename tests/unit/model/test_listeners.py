"""Listeners are read as Apache Kafka reads them."""

import pytest

from tidemill.model import broker_settings
from tidemill.model.addresses import Address
from tidemill.model.errors import InvalidConfig
from tidemill.model.listeners import (
    ListenerSpec,
    has_authentication,
    inter_broker_listener,
    is_authorizer_on,
    parse_listeners,
    server_security,
)

HERE = Address("127.0.0.1", 9092)


def listeners_of(**given: str) -> tuple[ListenerSpec, ...]:
    settings = broker_settings.parse({name.replace("_", "."): value for name, value in given.items()})
    return parse_listeners(settings.security, HERE, None)


def test_without_listeners_the_address_of_kafka_is_plain() -> None:
    assert listeners_of() == (ListenerSpec("PLAINTEXT", HERE),)
    assert parse_listeners(broker_settings.DEFAULTS.security, None, None) == ()


def test_listeners_with_names_of_their_own() -> None:
    inside, outside = listeners_of(
        listeners="inside://:9092,OUTSIDE://127.0.0.1:9093",
        advertised_listeners="OUTSIDE://broker.example:19093",
        listener_security_protocol_map="INSIDE:PLAINTEXT,outside:sasl_ssl",
    )
    assert inside == ListenerSpec("INSIDE", Address("0.0.0.0", 9092))
    assert outside == ListenerSpec("OUTSIDE", Address("127.0.0.1", 9093), Address("broker.example", 19093), "SASL_SSL")
    assert (outside.uses_tls, outside.requires_login) == (True, True)
    assert (inside.uses_tls, inside.requires_login) == (False, False)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"listeners": "9092"}, "is not NAME://host:port"),
        ({"listeners": "PLAINTEXT://127.0.0.1:70000"}, "is not between 0 and 65535"),
        ({"listeners": "PLAINTEXT://127.0.0.1:1,PLAINTEXT://127.0.0.1:2"}, "names PLAINTEXT twice"),
        ({"listeners": "SSL://127.0.0.1:1,PLAINTEXT://127.0.0.1:1"}, "has 127.0.0.1:1 twice"),
        ({"listeners": "MINE://127.0.0.1:1"}, "add MINE:PLAINTEXT"),
        ({"listeners": "A/B://127.0.0.1:1"}, "is not NAME://host:port"),
        ({"listeners": ",".join(f"L{i}://127.0.0.1:0" for i in range(33))}, "at most 32"),
        ({"advertised_listeners": "PLAINTEXT://x:1"}, "without listeners"),
        ({"listeners": "SSL://127.0.0.1:1", "advertised_listeners": "TLS://x:1"}, "which listeners does not have"),
        ({"listeners": "SSL://127.0.0.1:1", "listener_security_protocol_map": "SSL:TLS"}, "the protocols are"),
    ],
)
def test_a_wrong_listener_is_refused(given: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        listeners_of(**given)


def test_two_listeners_may_ask_for_any_port() -> None:
    assert len(listeners_of(listeners="SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0")) == 2


def test_brokers_use_the_named_listener_or_the_first() -> None:
    every = listeners_of(listeners="SSL://127.0.0.1:1,PLAINTEXT://127.0.0.1:2")
    assert inter_broker_listener(broker_settings.DEFAULTS.security, every) == every[0]
    named = broker_settings.parse({"inter.broker.listener.name": "plaintext"}).security
    assert inter_broker_listener(named, every) == every[1]
    with pytest.raises(InvalidConfig, match="is none of the listeners"):
        inter_broker_listener(broker_settings.parse({"inter.broker.listener.name": "X"}).security, every)


@pytest.mark.parametrize(
    ("given", "on", "protocol"),
    [
        ({}, False, "PLAINTEXT"),
        ({"listeners": "SSL://127.0.0.1:1"}, False, "PLAINTEXT"),
        ({"listeners": "SSL://127.0.0.1:1", "ssl_client_auth": "required"}, True, "SASL_PLAINTEXT"),
        ({"listeners": "SASL_PLAINTEXT://127.0.0.1:1"}, True, "SASL_PLAINTEXT"),
        ({"listeners": "SASL_SSL://127.0.0.1:1", "ssl_keystore_location": "x.pem"}, True, "SASL_SSL"),
        ({"listeners": "SASL_SSL://127.0.0.1:1", "authorizer": "none"}, False, "SASL_PLAINTEXT"),
        ({"authorizer": "acl"}, True, "PLAINTEXT"),
    ],
)
def test_one_listener_with_logins_turns_on_the_rest(given: dict[str, str], on: bool, protocol: str) -> None:
    settings = broker_settings.parse({name.replace("_", "."): value for name, value in given.items()})
    every = parse_listeners(settings.security, HERE, None)
    assert is_authorizer_on(settings, every) is on
    for server in ("grpc", "http"):
        assert server_security(server, settings, every).protocol == protocol
    assert has_authentication(settings, every) is (protocol != "PLAINTEXT")


def test_a_server_has_settings_of_its_own() -> None:
    settings = broker_settings.parse(
        {
            "tidemill.http.security": "SSL",
            "tidemill.grpc.security": "SASL_SSL",
            "ssl.client.auth": "required",
            "listener.name.http.ssl.client.auth": "requested",
            "listener.name.http.ssl.keystore.location": "web.pem",
        }
    )
    grpc, http = (server_security(server, settings, ()) for server in ("grpc", "http"))
    assert (grpc.protocol, grpc.uses_tls, grpc.authenticates) == ("SASL_SSL", True, True)
    assert (http.protocol, http.uses_tls, http.authenticates) == ("SSL", True, False)
    assert (grpc.settings.ssl_keystore_location, http.settings.ssl_keystore_location) == ("", "web.pem")
