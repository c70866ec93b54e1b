"""Flag over environment over file over default; nothing is guessed."""

from pathlib import Path

import pytest

from tidemill.model import broker_settings
from tidemill.model.addresses import Address, parse_address
from tidemill.model.errors import InvalidConfig
from tidemill.settings import ROWS, has_password, load, parse_pair, secrets_in_flags, shown


def test_the_defaults_are_those_of_the_design() -> None:
    settings = load()
    assert settings.data_dir == Path("data")
    assert settings.kafka == Address("127.0.0.1", 9092)
    assert settings.grpc == Address("127.0.0.1", 6174)
    assert settings.http == Address("127.0.0.1", 8080)
    assert settings.advertise is None
    assert settings.node_id == 0
    assert settings.rack is None
    assert settings.session_ttl_ms == 10_000
    assert settings.roles == ("overseer", "carrier")
    assert (settings.coordination, settings.streams, settings.timelines) == ("local:", "segments:", "sqlite:")
    assert settings.log_level == "info"


@pytest.mark.parametrize(
    ("flags", "engine"),
    [
        ({"coordination": "etcd://10.0.0.9"}, "replicated:"),
        ({"coordination": "etcd://10.0.0.9", "grpc": "none"}, "sqlite:"),
        ({"coordination": "etcd://10.0.0.9", "timelines": "sqlite:"}, "sqlite:"),
        ({"coordination": "etcd://10.0.0.9", "kafka": "0.0.0.0:9092", "advertise": "10.0.0.1:9092"}, "sqlite:"),
        (
            {
                "coordination": "etcd://10.0.0.9",
                "kafka": "0.0.0.0:9092",
                "advertise": "10.0.0.1:9092",
                "grpc": "0.0.0.0:6174",
            },
            "replicated:",
        ),
        (
            {
                "coordination": "etcds://10.0.0.9",
                "kafka": "10.0.0.1:9092",
                "grpc": "127.0.0.1:6174",
                "advertise-grpc": "10.0.0.1:6174",
            },
            "replicated:",
        ),
    ],
)
def test_timelines_are_on_all_brokers_of_a_cluster_that_can_call_each_other(flags: dict[str, str], engine: str) -> None:
    assert load(flags).timelines == engine


def test_names_follow_from_the_row() -> None:
    names = {row.name: row.variable for row in ROWS}
    assert names["session-ttl-ms"] == "TIDEMILL_SESSION_TTL_MS"
    assert names["data-dir"] == "TIDEMILL_DATA_DIR"


def test_flag_wins_over_environment_over_file_over_default(tmp_path: Path) -> None:
    (tmp_path / "tidemill.toml").write_text('kafka = "10.0.0.1:1"\nhttp = "10.0.0.1:2"\ngrpc = "10.0.0.1:3"\n')
    settings = load(
        {"kafka": "10.0.0.3:1", "http": None},
        {"TIDEMILL_KAFKA": "10.0.0.2:1", "TIDEMILL_HTTP": "10.0.0.2:2"},
        folder=tmp_path,
    )
    assert str(settings.kafka) == "10.0.0.3:1"
    assert str(settings.http) == "10.0.0.2:2"
    assert str(settings.grpc) == "10.0.0.1:3"
    assert settings.node_id == 0


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"settings file .* does not exist"):
        load(config="missing.toml", folder=tmp_path)
    with pytest.raises(InvalidConfig, match=r"settings file .* does not exist"):
        load(environ={"TIDEMILL_CONFIG": "missing.toml"}, folder=tmp_path)


def test_the_file_may_be_named_by_flag_or_environment(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("node-id = 1\n")
    (tmp_path / "b.toml").write_text("node-id = 2\n")
    assert load(environ={"TIDEMILL_CONFIG": "a.toml"}, folder=tmp_path).node_id == 1
    assert load(environ={"TIDEMILL_CONFIG": "a.toml"}, config="b.toml", folder=tmp_path).node_id == 2


def test_unknown_keys_are_refused_with_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "tidemill.toml").write_text('data-dirr = "x"\n')
    with pytest.raises(InvalidConfig, match="unknown key 'data-dirr'; did you mean data-dir"):
        load(folder=tmp_path)
    (tmp_path / "tidemill.toml").write_text("[broker]\nnum.partition = 3\n")
    with pytest.raises(InvalidConfig, match=r"'num.partition'; did you mean num\.partitions"):
        load(folder=tmp_path)
    with pytest.raises(InvalidConfig, match="'TIDEMILL_KAFKAA'; did you mean TIDEMILL_KAFKA"):
        load(environ={"TIDEMILL_KAFKAA": "x"})
    with pytest.raises(InvalidConfig, match=r"did you mean num\.partitions"):
        load(broker={"num.partitons": "3"})


@pytest.mark.parametrize("given", ["num.partitions", "a=b 'c", "'"])
def test_an_invalid_environment_variable_is_named(given: str) -> None:
    with pytest.raises(InvalidConfig, match=r"^TIDEMILL_SET: "):
        load(environ={"TIDEMILL_SET": given})


def test_broker_settings_of_file_environment_and_flags(tmp_path: Path) -> None:
    (tmp_path / "tidemill.toml").write_text(
        '[broker]\nnum.partitions = 3\n"log.retention.ms" = 5000\nauto.create.topics.enable = false\n'
        'log.cleanup.policy = ["compact", "delete"]\n'
    )
    settings = load(environ={"TIDEMILL_SET": "group.max.size=7"}, broker={"num.partitions": "4"}, folder=tmp_path)
    assert settings.broker.num_partitions == 4
    assert settings.broker.group_max_size == 7
    assert settings.broker.auto_create_topics_enable is False
    assert settings.broker.topic_defaults == {"retention.ms": "5000", "cleanup.policy": "compact,delete"}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"node-id": "one"}, "--node-id: 'one' is not a number"),
        ({"node-id": "-1"}, "--node-id: -1 is not between"),
        ({"kafka": "localhost"}, "--kafka: 'localhost' is not host:port"),
        ({"kafka": "::1:9092"}, r"write an IPv6 address as \[::1\]:9092"),
        ({"kafka": "localhost:99999"}, "is not between 0 and 65535"),
        ({"kafka": ":9092"}, "is not host:port"),
        ({"roles": "boss"}, "'boss' is not one of overseer, carrier"),
        ({"streams": "tape:"}, "'tape:' does not start with one of"),
        ({"log-level": "loud"}, "'loud' is not one of"),
        ({"session-ttl-ms": "1"}, "is not between"),
    ],
)
def test_values_that_do_not_fit_are_refused(flags: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        load(flags)


def test_broken_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "tidemill.toml").write_text("kafka = ")
    with pytest.raises(InvalidConfig, match="cannot be read"):
        load(folder=tmp_path)
    (tmp_path / "tidemill.toml").write_text("broker = 3\n")
    with pytest.raises(InvalidConfig, match=r"write \[broker\]"):
        load(folder=tmp_path)


def test_addresses() -> None:
    assert parse_address("[::1]:0") == Address("::1", 0)

    assert str(Address("::1", 9092)) == "[::1]:9092"
    assert load({"grpc": "none", "http": "none"}).grpc is None


@pytest.mark.parametrize(("name", "text"), [("data-dir", "s3://bucket/x"), ("timelines", "sqlite:gs://bucket/x.db")])
def test_folders_and_files_are_local(name: str, text: str) -> None:
    with pytest.raises(InvalidConfig, match=rf"--{name}: .* has the scheme \w+:, which is not supported"):
        load({name: text})


def test_a_folder_may_be_a_file_url() -> None:
    assert load({"data-dir": "file:///srv/data"}).data_dir == Path("/srv/data")


def test_roles_have_one_order() -> None:
    assert load({"roles": "carrier, overseer"}).roles == ("overseer", "carrier")


def test_every_broker_setting_is_listed_with_its_value() -> None:
    settings = broker_settings.parse({"num.partitions": "5"})
    listed = {each.setting.name: each for each in settings.listed()}
    assert set(listed) == set(broker_settings.SETTINGS)
    assert (listed["num.partitions"].value, listed["num.partitions"].overridden) == ("5", True)
    assert (listed["message.max.bytes"].value, listed["message.max.bytes"].overridden) == ("1048588", False)
    assert all(each.setting.doc for each in listed.values())


@pytest.mark.parametrize(
    "overrides",
    [
        {"num.partitions": "0"},
        {"num.partitions": "x"},
        {"log.cleanup.policy": "keep"},
        {"group.min.session.timeout.ms": "1800001"},
    ],
)
def test_broker_settings_that_do_not_fit_are_refused(overrides: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig):
        broker_settings.parse(overrides)


@pytest.mark.parametrize(
    ("url", "reported"),
    [
        ("segments:", "segments:"),
        ("chdb:/fast/disk?fsync=false", "chdb:/fast/disk?fsync=false"),
        ("clickhouse://me:ge%40heim@one,two/shop?ranges=0-4,5-9", "clickhouse://one,two/shop?ranges=0-4,5-9"),
        ("clickhouse://me:ge@heim@one", "clickhouse://one"),
        ("etcd://me:geheim@a:2379,b:2379/folder?ca=ca.pem", "etcd://a:2379,b:2379/folder?ca=ca.pem"),
        ("postgresql://me:geheim@db/app", "postgresql://db/app"),
        ("postgresql://db/app?user=me&PASSWORD=geheim&x=1", "postgresql://db/app?user=me&PASSWORD=***&x=1"),
        ("mysql:me:geheim@db", "mysql:db"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, reported: str) -> None:
    assert shown(url) == reported


@pytest.mark.parametrize(
    ("url", "has"),
    [
        ("segments:", False),
        ("chdb:/fast/disk?fsync=false", False),
        ("clickhouse://me@one", False),
        ("clickhouse://me:geheim@one", True),
        ("etcd://a:2379,b:2379/folder", False),
        ("postgresql://db/app?user=me&PASSWORD=geheim&x=1", True),
    ],
)
def test_a_password_in_a_url_is_found(url: str, has: bool) -> None:
    assert has_password(url) is has


def test_secrets_of_the_command_line_are_named() -> None:
    flags = {"cluster-secret": "x", "streams": "clickhouse://me:geheim@one", "timelines": "sqlite:", "rack": "a:b@c"}
    pairs = {"ssl.key.password": "x", "listener.name.a.ssl.key.password": "x", "num.partitions": "3"}
    assert secrets_in_flags(flags, pairs) == [
        "--cluster-secret",
        "--streams",
        "--set ssl.key.password",
        "--set listener.name.a.ssl.key.password",
    ]
    assert secrets_in_flags({"cluster-secret": None, "coordination": "etcd://a:2379"}, {}) == []


def test_no_repr_shows_a_secret() -> None:
    given = {"cluster-secret": "geheim1", "coordination": "etcd://me:geheim2@h", "streams": "clickhouse://me:geheim3@h"}
    settings = load(given, broker={"ssl.key.password": "geheim4"})
    assert "geheim" not in repr(settings)


@pytest.mark.parametrize(("text", "shown_part"), [("num.partitions", "'num.partitions'"), ("geheim", "a part of it")])
def test_a_pair_without_a_value_is_shown_only_if_it_is_a_name(text: str, shown_part: str) -> None:
    with pytest.raises(InvalidConfig, match=shown_part):
        parse_pair(text)


def test_listeners_of_the_file_become_kafkas_settings(tmp_path: Path) -> None:
    (tmp_path / "tidemill.toml").write_text(
        '[listeners.inside]\nbind = "127.0.0.1:9092"\n'
        '[listeners.OUTSIDE]\nbind = "127.0.0.1:9093"\nadvertise = "broker.example:19093"\nsecurity = "SASL_SSL"\n'
        'ssl.keystore.location = "outside.pem"\n'
    )
    settings = load(folder=tmp_path)
    assert [(each.name, str(each.bind), each.protocol) for each in settings.listeners] == [
        ("INSIDE", "127.0.0.1:9092", "PLAINTEXT"),
        ("OUTSIDE", "127.0.0.1:9093", "SASL_SSL"),
    ]
    assert settings.listeners[1].advertised == Address("broker.example", 19093)
    assert settings.kafka == Address("127.0.0.1", 9092), "the first one is for other brokers"
    assert settings.broker.of_listener("OUTSIDE").ssl_keystore_location == "outside.pem"
    assert settings.broker.security.ssl_keystore_location == ""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('listeners = "x"', "write \\[listeners.NAME\\]"),
        ('[listeners.A]\nsecurity = "SSL"', "has no bind"),
        ('[listeners.A]\nbind = "127.0.0.1:1"\nport = 1', "unknown key 'port' in \\[listeners.A\\]"),
        ('[listeners.A]\nbind = "127.0.0.1:1"\n[broker]\nlisteners = "B://127.0.0.1:2"', "are both set"),
        ('[listeners.A]\nbind = "127.0.0.1:1"\nsecurity = "TLS"', "the protocols are"),
    ],
)
def test_wrong_listeners_of_the_file_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "tidemill.toml").write_text(text)
    with pytest.raises(InvalidConfig, match=reason):
        load(folder=tmp_path)


def test_advertise_is_for_one_plain_listener() -> None:
    with pytest.raises(InvalidConfig, match=r"set advertised\.listeners"):
        load({"advertise": "x:1"}, broker={"listeners": "SSL://127.0.0.1:1"})


def test_variables_that_kubernetes_injects_are_ignored() -> None:
    injected = {
        "TIDEMILL_SERVICE_HOST": "10.0.0.1",
        "TIDEMILL_SERVICE_PORT": "9092",
        "TIDEMILL_SERVICE_PORT_KAFKA": "9092",
        "TIDEMILL_PORT": "tcp://10.0.0.1:9092",
        "TIDEMILL_PORT_9092_TCP": "tcp://10.0.0.1:9092",
        "TIDEMILL_PORT_9092_TCP_ADDR": "10.0.0.1",
        "TIDEMILL_PORT_9092_TCP_PORT": "9092",
        "TIDEMILL_PORT_9092_TCP_PROTO": "tcp",
        "TIDEMILL_CONSOLE_SERVICE_HOST": "10.0.0.2",
    }
    assert load(environ=injected) == load()
    with pytest.raises(InvalidConfig, match="TIDEMILL_PORTS"):
        load(environ={"TIDEMILL_PORTS": "1"})


def test_variables_of_clients_do_not_stop_a_broker() -> None:
    clients = ("TIDEMILL_BOOTSTRAP", "TIDEMILL_BOOTSTRAP_GRPC", "TIDEMILL_BOOTSTRAP_HTTP", "TIDEMILL_CLIENT")
    assert load(environ=dict.fromkeys(clients, "elsewhere:1")) == load()


def test_a_secret_may_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("of the cluster\n")
    assert load(environ={"TIDEMILL_CLUSTER_SECRET_FILE": str(file)}).cluster_secret == "of the cluster"
    file.write_text("ssl.key.password='of the key'\n")
    assert load(environ={"TIDEMILL_SET_FILE": str(file)}).broker.security.ssl_key_password == "of the key"
    for wrong in (b"", b"\xff\xff", b"x" * 70_000):
        file.write_bytes(wrong)
        with pytest.raises(InvalidConfig, match="TIDEMILL_CLUSTER_SECRET_FILE"):
            load(environ={"TIDEMILL_CLUSTER_SECRET_FILE": str(file)})
    with pytest.raises(InvalidConfig, match="are both set"):
        load(environ={"TIDEMILL_CLUSTER_SECRET_FILE": str(file), "TIDEMILL_CLUSTER_SECRET": "x"})
    with pytest.raises(InvalidConfig, match="cannot be read"):
        load(environ={"TIDEMILL_CLUSTER_SECRET_FILE": str(tmp_path / "missing")})


def test_no_listing_shows_a_secret() -> None:
    given = {"ssl.key.password": "hunter2", "listener.name.a.ssl.key.password": "hunter3"}
    listed = broker_settings.parse(given).listed()
    shown = {each.setting.name: each.value for each in listed if each.overridden}
    assert shown == {"ssl.key.password": "", "listener.name.a.ssl.key.password": ""}


def test_labels_of_metrics_come_from_flag_environment_and_file(tmp_path: Path) -> None:
    assert load().metrics_labels == ()
    file = tmp_path / "tidemill.toml"
    file.write_text('[metrics.labels]\nenv = "prod"\nshard = 3\n')
    assert load(folder=tmp_path).metrics_labels == (("env", "prod"), ("shard", "3"))
    assert load({}, {"TIDEMILL_METRICS_LABELS": "env=test"}, folder=tmp_path).metrics_labels == (("env", "test"),)
    assert load({"metrics-labels": "a=b"}, folder=tmp_path).metrics_labels == (("a", "b"),)
    for text in ('metrics.labels = "env=prod,team=mail"\n', 'metrics-labels = "env=prod,team=mail"\n'):
        file.write_text(text)
        assert load(folder=tmp_path).metrics_labels == (("env", "prod"), ("team", "mail"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("metrics = 3\n", r"metrics is not a table; write \[metrics\.labels\]"),
        ("[metrics]\nlabel = 3\n", r"unknown key in \[metrics\] 'label'; did you mean labels"),
        ('[metrics.labels]\nenv = "a,b=c"\n', "label env has a comma"),
        ("[metrics.labels]\nenv = []\n", "the value of label env must have"),
        ("[metrics.labels.env]\na = 1\n", "metrics.labels.env has a value of type dict"),
        ('[metrics.labels]\ntopic = "x"\n', "metrics-labels: label topic is used by metrics"),
        ('metrics-labels = "a=b"\n[metrics.labels]\nenv = "x"\n', "are both set; keep one of them"),
    ],
)
def test_wrong_labels_of_metrics_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "tidemill.toml").write_text(text)
    with pytest.raises(InvalidConfig, match=reason):
        load(folder=tmp_path)
