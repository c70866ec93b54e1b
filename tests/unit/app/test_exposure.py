"""Servers that other machines can reach need logins, or the operator's word."""

from pathlib import Path

import pytest

from tidemill.app.exposure import check_exposure
from tidemill.model.errors import InvalidConfig
from tidemill.settings import Settings, load

ELSEWHERE_OFF = {"kafka": "none", "grpc": "none", "http": "none"}


def settings_of(flags: dict[str, str], **broker: str) -> Settings:
    pairs = {name.replace("_", "."): value for name, value in broker.items()}
    return load({"data-dir": str(Path("unused")), **ELSEWHERE_OFF, **flags}, broker=pairs)


@pytest.mark.parametrize("server", ["kafka", "grpc", "http"])
@pytest.mark.parametrize(
    "host", ["0.0.0.0", "[::]", "10.0.0.7", "broker.example", "localhost.example", "[::ffff:10.0.0.7]"]
)
def test_an_address_of_the_network_is_refused(server: str, host: str) -> None:
    with pytest.raises(InvalidConfig, match=r"without a login; .*SASL_SSL.*allow\.anonymous=true"):
        check_exposure(settings_of({server: f"{host}:9092"}))


@pytest.mark.parametrize("server", ["kafka", "grpc", "http"])
@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "[::1]", "localhost"])
def test_an_address_of_this_machine_is_accepted(server: str, host: str) -> None:
    check_exposure(settings_of({server: f"{host}:9092"}))


def test_the_operator_may_allow_anonymous_clients() -> None:
    check_exposure(settings_of({"kafka": "0.0.0.0:9092"}, allow_anonymous="true"))


def test_logins_of_a_listener_hold_for_the_other_servers() -> None:
    check_exposure(settings_of({"grpc": "0.0.0.0:1", "http": "0.0.0.0:2"}, listeners="SASL_SSL://:9092"))


def test_one_plain_listener_of_two_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"kafka 0\.0\.0\.0:9093"):
        check_exposure(settings_of({}, listeners="SASL_SSL://:9092,PLAINTEXT://:9093"))


def test_certificates_count_as_logins_only_if_they_are_required() -> None:
    required = {"ssl.client.auth": "required", "listeners": "SSL://:9092"}
    check_exposure(load({**ELSEWHERE_OFF}, broker=required))
    with pytest.raises(InvalidConfig):
        check_exposure(load({**ELSEWHERE_OFF}, broker={**required, "ssl.client.auth": "requested"}))


def test_a_server_without_logins_by_its_own_setting_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"http 0\.0\.0\.0:2"):
        check_exposure(
            settings_of({"http": "0.0.0.0:2"}, listeners="SASL_SSL://:9092", tidemill_http_security="PLAINTEXT")
        )
