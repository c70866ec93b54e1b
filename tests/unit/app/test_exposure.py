"""Servers that other machines can reach need logins, or the operator's word."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tidemill.app.exposure import check_exposure, warn_without_administrator
from tidemill.cluster.local import LocalCoordination
from tidemill.model.errors import InvalidConfig
from tidemill.security.users import UserRecord, Users
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


def test_the_refusal_names_the_commands_to_run() -> None:
    with pytest.raises(InvalidConfig) as refused:
        check_exposure(settings_of({"kafka": "0.0.0.0:9092", "data-dir": "/var/lib/tidemill"}))
    assert str(refused.value) == (
        "kafka 0.0.0.0:9092: other machines could connect without a login; require logins (tidemill cert create broker "
        "--host NAME; tidemill user add admin --super --data-dir /var/lib/tidemill; serve with --set "
        "listeners=SASL_SSL://0.0.0.0:9092 --set ssl.keystore.location=certs/broker.pem), or accept everyone with "
        "--set allow.anonymous=true"
    )
    with pytest.raises(InvalidConfig, match="--super --coordination FILE"):
        check_exposure(settings_of({"kafka": "0.0.0.0:9092", "coordination": "etcd://me:geheim@h:1"}))


def test_logins_that_are_not_encrypted_are_logged() -> None:
    with capture_logs() as logged:
        check_exposure(settings_of({}, listeners="SASL_PLAINTEXT://:9092"))
        check_exposure(settings_of({}, listeners="SASL_PLAINTEXT://127.0.0.1:9092"))
        check_exposure(settings_of({}, listeners="SASL_SSL://:9092"))
        check_exposure(settings_of({"http": "0.0.0.0:8080"}, listeners="SASL_PLAINTEXT://127.0.0.1:9092"))
    assert [(each["event"], each["listener"]) for each in logged] == [
        ("logins_are_not_encrypted", "SASL_PLAINTEXT://0.0.0.0:9092"),
        ("logins_are_not_encrypted", "http 0.0.0.0:8080"),
    ]


def test_engines_that_are_not_verified_are_logged_where_clients_log_in() -> None:
    etcd = {"coordination": "etcd://db:2379"}
    with capture_logs() as logged:
        check_exposure(settings_of(etcd, listeners="SASL_SSL://:9092"))
        check_exposure(settings_of(etcd))
    assert [(each["event"], each["setting"]) for each in logged] == [("engine_is_not_verified", "coordination")]


@pytest.mark.parametrize(
    ("broker", "users", "event"),
    [
        ({"listeners": "SASL_SSL://:9092"}, {}, "no_users"),
        ({"listeners": "SASL_SSL://:9092"}, {"alice": False}, "no_administrator"),
        ({"listeners": "SASL_SSL://:9092"}, {"alice": False, "root": True}, None),
        ({"listeners": "SASL_SSL://:9092", "super.users": "User:x"}, {}, None),
        ({"listeners": "SASL_SSL://:9092", "sasl.enabled.mechanisms": "OAUTHBEARER"}, {}, "no_administrator"),
        ({"listeners": "SSL://:9092", "ssl.client.auth": "required"}, {}, "no_administrator"),
        ({"listeners": "SSL://:9092"}, {}, None),
        ({}, {}, None),
    ],
)
async def test_a_broker_without_an_administrator_says_how_to_add_one(
    tmp_path: Path, broker: dict[str, str], users: dict[str, bool], event: str | None
) -> None:
    settings = load({**ELSEWHERE_OFF, "data-dir": "data"}, broker=broker)
    store = await LocalCoordination.open(tmp_path)
    known = Users(store)
    for name, is_super in users.items():
        await known.create(name, UserRecord(is_super=is_super))
    with capture_logs() as logged:
        warn_without_administrator(settings, known)
    await store.close()
    assert [each["event"] for each in logged] == ([] if event is None else [event])
    if event == "no_users":
        assert "tidemill user add admin --super --data-dir data" in logged[0]["next_step"]


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
