"""The settings of a node: flag, environment variable, key in tidemill.toml and default.

One row of `ROWS` is one setting. Its name gives the flag (`--data-dir`), the variable (`TIDEMILL_DATA_DIR`) and the key
(`data-dir`). A flag overrides the environment, the environment overrides the file, the file overrides the default.
Nothing is guessed: an unknown key, an unknown `TIDEMILL_*` variable or an invalid value is rejected, with the nearest
match in the error. Broker settings in Kafka's spelling are in the table `[broker]` of the file; `--set` gives them as
flags.

This table replaces a settings library, because the library took 0.2 s of the half second in which a broker starts. The
nearest match also had to be written by hand with it.
"""

import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from tidemill.model import broker_settings
from tidemill.model.addresses import Address, parse_address
from tidemill.model.broker_settings import BrokerSettings
from tidemill.model.errors import InvalidConfig
from tidemill.model.listeners import ListenerSpec, inter_broker_listener, is_local, parse_listeners
from tidemill.model.locations import UnsupportedLocation, local_path
from tidemill.model.metric_labels import parse_labels
from tidemill.model.metrics import Labels
from tidemill.model.security_settings import LISTENER_PREFIX, PER_LISTENER

CONFIG_FILE = "tidemill.toml"
PREFIX = "TIDEMILL_"
ROLES = ("overseer", "carrier")
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("auto", "human", "json")
NODE_ID_MAX = 2**31 - 1
SESSION_TTL_MS_MIN = 100
_HOST_NAME = re.compile(r"\*|\.?[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?|[0-9A-Fa-f:]+")
_PASSWORD = re.compile(r"(password=)[^&]*", re.IGNORECASE)


class Row(NamedTuple):
    """One setting: its name, its default and the function that parses its text."""

    name: str
    default: str
    read: Callable[[str], Any]
    doc: str

    @property
    def field(self) -> str:
        """The attribute of Settings and the parameter of `tidemill serve`."""
        return self.name.replace("-", "_")

    @property
    def variable(self) -> str:
        """The environment variable."""
        return PREFIX + self.field.upper()


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one node."""

    data_dir: Path
    kafka: Address | None
    grpc: Address | None
    http: Address | None
    http_hosts: tuple[str, ...]
    console_readonly: bool
    advertise: Address | None
    advertise_grpc: Address | None
    advertise_http: Address | None
    node_id: int
    rack: str | None
    session_ttl_ms: int
    roles: tuple[str, ...]
    coordination: str = field(repr=False)
    cluster_secret: str | None = field(repr=False)
    streams: str = field(repr=False)
    timelines: str = field(repr=False)
    log_level: str
    log_format: str
    metrics_labels: Labels
    otel_metrics: bool
    otel_traces: bool
    broker: BrokerSettings
    listeners: tuple[ListenerSpec, ...]
    admin_password: str | None = field(default=None, repr=False)


def _optional_address(text: str) -> Address | None:
    return None if text in {"", "none"} else parse_address(text)


def _text(text: str) -> str | None:
    return text or None


def _names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    for name in names:
        if not _HOST_NAME.fullmatch(name):
            raise InvalidConfig(f"{name[:60]!r} is not a host name; write broker.example.com, without a port")
    return names


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.lower() not in choices:
            raise InvalidConfig(f"{text!r} is not one of {', '.join(choices)}")
        return text.lower()

    return read


def _boolean(text: str) -> bool:
    return _one_of("true", "false")(text) == "true"


def _roles(text: str) -> tuple[str, ...]:
    roles = tuple(_one_of(*ROLES)(part.strip()) for part in text.split(","))
    return tuple(role for role in ROLES if role in roles)


def _number(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise InvalidConfig(f"{text!r} is not a number") from None
        if not low <= value <= high:
            raise InvalidConfig(f"{text} is not between {low} and {high}")
        return value

    return read


def shown(url: str) -> str:
    """The URL for messages and logs: without the login and without passwords in its options."""
    scheme, colon, place = url.partition("://" if "://" in url else ":")
    return _PASSWORD.sub(r"\1***", f"{scheme}{colon}{place.rpartition('@')[2]}")


def has_password(url: str) -> bool:
    """Whether a URL has a password: in its login or in its options."""
    _, _, place = url.partition("://")
    login, at, _ = place.rpartition("@")
    return bool(at and ":" in login) or _PASSWORD.search(url) is not None


def secrets_in_flags(flags: Mapping[str, str | None], pairs: Mapping[str, str]) -> list[str]:
    """The flags and the settings of --set that hold a secret: every user of the machine can see a command line."""
    found = [
        f"--{name}"
        for name, value in flags.items()
        if value and name in SECRET_ROWS and (name == CLUSTER_SECRET or has_password(value))
    ]
    return found + [f"--set {name}" for name in pairs if broker_settings.is_sensitive(name)]


def _engine(*schemes: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        scheme = text.partition(":")[0]
        if ":" not in text or scheme not in schemes:
            what = repr(shown(text)) if ":" in text else "a value without a colon"  # it may be a password
            raise InvalidConfig(f"{what} does not start with one of {', '.join(f'{each}:' for each in schemes)}")
        return text

    return read


def _folder(text: str) -> Path:
    try:
        return Path(local_path(text))
    except UnsupportedLocation as error:
        raise InvalidConfig(str(error)) from None


def _timelines(text: str) -> str:
    """Check the URL of a timeline engine, or an empty text for the default. A SQLite URL may name a file."""
    if not text:
        return text
    url = _engine("sqlite", "memory", "replicated", "postgresql", "postgres")(text)
    if url.startswith("sqlite:") and (path := url.removeprefix("sqlite:").removeprefix("//")):
        _folder(path)
    return url


ROWS = (
    Row("data-dir", "data", _folder, "Directory for all data of this broker."),
    Row(
        "kafka",
        "127.0.0.1:9092",
        _optional_address,
        "Kafka listener, host:port. Port 0 picks a free port; none disables the listener.",
    ),
    Row("grpc", "127.0.0.1:6174", _optional_address, "gRPC listener (timelines, streams), host:port or none."),
    Row("http", "127.0.0.1:8080", _optional_address, "HTTP listener (console, metrics, health), host:port or none."),
    Row(
        "http-hosts",
        "",
        _names,
        "More host names that HTTP clients may use, separated by commas. .example.com allows all its subdomains.",
    ),
    Row("console-readonly", "false", _boolean, "Refuse every change by the console and the HTTP API: true or false."),
    Row("advertise", "", _optional_address, "Address that Kafka clients connect to. Default: the address of --kafka."),
    Row(
        "advertise-grpc", "", _optional_address, "Address that gRPC clients connect to. Default: the address of --grpc."
    ),
    Row("advertise-http", "", _optional_address, "Address that browsers connect to. Default: the address of --http."),
    Row("node-id", "0", _number(0, NODE_ID_MAX), "Id of this broker, unique in the cluster."),
    Row("rack", "", _text, "Rack or zone of this broker."),
    Row(
        "session-ttl-ms",
        "10000",
        _number(SESSION_TTL_MS_MIN, NODE_ID_MAX),
        "Time until a session expires that is not renewed.",
    ),
    Row(
        "roles",
        "overseer,carrier",
        _roles,
        "Roles of this broker: overseer (controller), carrier (storage and clients) or both.",
    ),
    Row(
        "coordination",
        "local:",
        _engine("local", "etcd", "etcds"),
        "Coordination backend: local: (one broker) or etcd://user:password@host1:2379,host2:2379/folder?ca=ca.pem.",
    ),
    Row(
        "cluster-secret",
        "",
        _text,
        "Secret with which brokers authenticate to each other. Default: a generated one, stored in the coordination.",
    ),
    Row(
        "streams",
        "segments:",
        _engine("segments", "memory", "chdb", "clickhouse"),
        "Storage of streams: segments:, chdb:, clickhouse://host1,host2/database or memory:.",
    ),
    Row(
        "timelines",
        "",
        _timelines,
        "Storage of timelines: sqlite:, replicated: (on all brokers of a cluster), memory: or postgresql://... "
        "Default: replicated: with etcd, if --grpc has an address that other brokers can reach; otherwise sqlite:.",
    ),
    Row("log-level", "info", _one_of(*LOG_LEVELS), "Lowest level that is logged."),
    Row(
        "log-format",
        "auto",
        _one_of(*LOG_FORMATS),
        "Log format: human, json, or auto (human on a terminal, json elsewhere).",
    ),
    Row(
        "metrics-labels",
        "",
        parse_labels,
        "Labels for every metric, such as env=prod,team=mail. In the file also as a table [metrics.labels].",
    ),
    Row("otel-metrics", "false", _boolean, "Send all metrics to an OpenTelemetry collector, by OTLP: true or false."),
    Row(
        "otel-traces",
        "false",
        _boolean,
        "Send traces of records and timed messages to an OpenTelemetry collector, by OTLP: true or false.",
    ),
)
_BY_NAME = {row.name: row for row in ROWS}
_BY_VARIABLE = {row.variable: row for row in ROWS}
CONFIG_VARIABLE = PREFIX + "CONFIG"
SET_VARIABLE = PREFIX + "SET"
CLIENT_VARIABLE = PREFIX + "CLIENT"
BOOTSTRAP_VARIABLES = (PREFIX + "BOOTSTRAP", PREFIX + "BOOTSTRAP_GRPC", PREFIX + "BOOTSTRAP_HTTP")
"""These configure the client commands. A broker ignores them."""
ADMIN_PASSWORD_FILE_VARIABLE = PREFIX + "ADMIN_PASSWORD_FILE"
"""A file with the password of the user `admin`, who is created as a super user if missing."""
FILE_SUFFIX = "_FILE"
METRICS_LABELS = "metrics-labels"
CLUSTER_SECRET = "cluster-secret"  # noqa: S105 -- the name of the setting
SECRET_ROWS = (CLUSTER_SECRET, "coordination", "streams", "timelines")
"""Settings that may hold a password. A variable with the suffix _FILE names a file with the value."""
FILE_BYTES_MAX = 64 * 1024
_FILE_VARIABLES = frozenset(
    {*(_BY_NAME[name].variable + FILE_SUFFIX for name in SECRET_ROWS), SET_VARIABLE + FILE_SUFFIX}
)
_SERVICE_VARIABLE = re.compile(
    r"TIDEMILL(_[A-Z0-9_]+)?_(SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)|PORT(_[0-9]+_(TCP|UDP|SCTP)(_[A-Z]+)?)?)"
)
"""Variables that Kubernetes sets in every pod for services whose names start with tidemill."""


def load(
    flags: Mapping[str, str | None] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    config: str | None = None,
    broker: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Settings:
    """Settings from flags (by row name), environment, file and defaults. InvalidConfig says what is wrong and where.

    `config` is the --config flag and `broker` the pairs of --set. The settings file is read from `folder`; without
    `folder` no file is read.
    """
    environ = environ or {}
    given_flags = {name: text for name, text in (flags or {}).items() if text is not None}
    _refuse_unknown(given_flags, _BY_NAME, "setting")
    named = config or environ.get(CONFIG_VARIABLE)
    environ = _with_files(environ)
    in_file: dict[str, str] = {}
    broker_in_file: dict[str, str] = {}
    if folder is not None:
        in_file, broker_in_file = _read_file(folder / (named or CONFIG_FILE), must_exist=bool(named))
    values: dict[str, Any] = {}
    for row in ROWS:
        text, where = _choose(row, given_flags, environ, in_file)
        try:
            values[row.field] = row.read(text)
        except InvalidConfig as error:
            raise InvalidConfig(f"{where}: {error}") from None
    _refuse_unknown_variables(environ)
    values["admin_password"] = _admin_password(environ)
    overrides = {**broker_in_file, **_pairs(environ.get(SET_VARIABLE, "")), **(broker or {})}
    return _with_listeners(values, broker_settings.parse(overrides))


def _with_listeners(values: dict[str, Any], broker: BrokerSettings) -> Settings:
    listeners = parse_listeners(broker.security, values["kafka"], values["advertise"])
    between_brokers = inter_broker_listener(broker.security, listeners)
    if broker.security.listeners and between_brokers is not None:
        values["kafka"], values["advertise"] = between_brokers.bind, between_brokers.advertised
    values["timelines"] = values["timelines"] or _default_timelines(values, listeners)
    return Settings(**values, broker=broker, listeners=listeners)


def _default_timelines(values: Mapping[str, Any], listeners: Sequence[ListenerSpec]) -> str:
    """Where timelines are kept when no storage is chosen: on all brokers of a cluster, if these can call each other."""
    is_cluster = values["coordination"].startswith(("etcd:", "etcds:"))
    reachable = reached_by_brokers(values["advertise_grpc"] or values["grpc"], listeners)
    return "replicated:" if is_cluster and reachable else "sqlite:"


def reached_by_brokers(grpc: Address | None, listeners: Sequence[ListenerSpec]) -> bool:
    """Whether other brokers can reach a gRPC server: its address is not local, or all brokers are on one machine."""
    if grpc is None:
        return False
    return not is_local(grpc.host) or all(is_local((each.advertised or each.bind).host) for each in listeners)


def _with_files(environ: Mapping[str, str]) -> Mapping[str, str]:
    """The environment with the content of the files that `_FILE` variables name."""
    found: dict[str, str] = {}
    for name, path in environ.items():
        if name not in _FILE_VARIABLES:
            found[name] = path
            continue
        variable = name.removesuffix(FILE_SUFFIX)
        if variable in environ:
            raise InvalidConfig(f"{variable} and {name} are both set; set one of them")
        found[variable] = read_secret(Path(path), name)
    return found


def _admin_password(environ: Mapping[str, str]) -> str | None:
    path = environ.get(ADMIN_PASSWORD_FILE_VARIABLE)
    return None if path is None else read_secret(Path(path), ADMIN_PASSWORD_FILE_VARIABLE)


def read_secret(path: Path, named_by: str) -> str:
    """The text of a file that holds a secret, without the line end. `named_by` is for the error."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
        text = content.decode("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{named_by}: {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not text or len(content) > FILE_BYTES_MAX:
        raise InvalidConfig(f"{named_by}: {path} must hold one secret of 1 to {FILE_BYTES_MAX} bytes")
    return text


def _choose(
    row: Row, flags: Mapping[str, str], environ: Mapping[str, str], in_file: Mapping[str, str]
) -> tuple[str, str]:
    if row.name in flags:
        return flags[row.name], f"--{row.name}"
    if row.variable in environ:
        return environ[row.variable], row.variable
    return in_file.get(row.name, row.default), row.name


def _refuse_unknown_variables(environ: Mapping[str, str]) -> None:
    known = {
        *_BY_VARIABLE,
        CONFIG_VARIABLE,
        SET_VARIABLE,
        CLIENT_VARIABLE,
        *BOOTSTRAP_VARIABLES,
        ADMIN_PASSWORD_FILE_VARIABLE,
    }
    own = (name for name in environ if name.startswith(PREFIX) and not _SERVICE_VARIABLE.fullmatch(name))
    _refuse_unknown(own, known, "environment variable")


def _refuse_unknown(names: Any, known: Any, what: str) -> None:
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InvalidConfig(f"unknown {what} {name[:60]!r}{hint}")


def _read_file(path: Path, *, must_exist: bool) -> tuple[dict[str, str], dict[str, str]]:
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if must_exist:
            raise InvalidConfig(
                f"the settings file {path} does not exist; correct --config or {CONFIG_VARIABLE}"
            ) from None
        return {}, {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise InvalidConfig(f"the settings file {path} cannot be read: {error}") from None
    broker, listeners = document.pop("broker", {}), document.pop("listeners", {})
    metrics = document.pop("metrics", {})
    if not isinstance(broker, dict):
        raise InvalidConfig(f"{path}: broker is not a table; write [broker]")
    try:
        broker = {**broker, **_listener_tables(listeners, broker)}
        document |= _metrics_table(metrics, document)
        _refuse_unknown(document, {*_BY_NAME, "broker", "listeners"}, "key")
        in_broker = (name for name, _ in _flat(broker) if not name.startswith(LISTENER_PREFIX))
        _refuse_unknown(in_broker, broker_settings.SETTINGS, "key in [broker]")
        return {name: _as_text(name, value) for name, value in document.items()}, dict(_flat(broker))
    except InvalidConfig as error:
        raise InvalidConfig(f"{path}: {error}") from None


def _metrics_table(table: Any, document: Mapping[str, Any]) -> dict[str, str]:
    """Turn `[metrics.labels]`, or `metrics.labels = "env=prod"`, into the setting of that name."""
    if not isinstance(table, dict):
        raise InvalidConfig("metrics is not a table; write [metrics.labels]")
    _refuse_unknown(table, {"labels"}, "key in [metrics]")
    if "labels" not in table:
        return {}
    if METRICS_LABELS in document:
        raise InvalidConfig(f"{METRICS_LABELS} and metrics.labels are both set; keep one of them")
    labels = table["labels"]
    if not isinstance(labels, dict):
        return {METRICS_LABELS: _as_text("metrics.labels", labels)}
    pairs = [(name, _as_text(f"metrics.labels.{name}", value)) for name, value in labels.items()]
    for name, value in pairs:
        if "," in value:
            raise InvalidConfig(f"the value of label {name} has a comma, which separates labels; remove it")
    return {METRICS_LABELS: ",".join(f"{name}={value}" for name, value in pairs)}


def _listener_tables(tables: Any, broker: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the tables `[listeners.NAME]` into Kafka's settings."""
    if not tables:
        return {}
    if not isinstance(tables, dict) or not all(isinstance(each, dict) for each in tables.values()):
        raise InvalidConfig("listeners is not a table of tables; write [listeners.NAME] with bind, advertise, security")
    given = {name for name, _ in _flat(broker)}
    for name in ("listeners", "advertised.listeners", "listener.security.protocol.map"):
        if name in given:
            raise InvalidConfig(f"{name} in [broker] and [listeners.NAME] are both set; keep one of them")
    binds, advertised, protocols, more = [], [], [], {}
    for name, table in tables.items():
        own = dict(_flat(table))
        if "bind" not in own:
            raise InvalidConfig(f'[listeners.{name}] has no bind; add bind = "127.0.0.1:9092"')
        binds.append(f"{name}://{own.pop('bind')}")
        if "advertise" in own:
            advertised.append(f"{name}://{own.pop('advertise')}")
        protocols.append(f"{name}:{own.pop('security', 'PLAINTEXT')}")
        for key, text in own.items():
            if key not in PER_LISTENER:
                raise InvalidConfig(
                    f"unknown key {key[:60]!r} in [listeners.{name}]; use bind, advertise, security, ssl.* or sasl.*"
                )
            more[f"{LISTENER_PREFIX}{name.lower()}.{key}"] = text
    return {
        "listeners": ",".join(binds),
        "advertised.listeners": ",".join(advertised),
        "listener.security.protocol.map": ",".join(protocols),
        **more,
    }


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Flatten nested tables: TOML reads `num.partitions = 3` as a table in a table."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, _as_text(prefix + name, value)


def _as_text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list):
        return ",".join(_as_text(name, each) for each in value)
    raise InvalidConfig(f"{name} has a value of type {type(value).__name__}; use a string, number, boolean or list")


def _pairs(text: str) -> dict[str, str]:
    """Parse `TIDEMILL_SET="a=b c=d"`."""
    try:
        return dict(map(parse_pair, shlex.split(text)))
    except (InvalidConfig, ValueError) as error:
        raise InvalidConfig(f"{SET_VARIABLE}: {error}") from None


def parse_pair(text: str) -> tuple[str, str]:
    """Parse `name=value`, as --set takes it."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        # Only a name is shown: the text may be the end of a secret that has a space.
        what = repr(text) if broker_settings.is_known(text) else "a part of it"
        raise InvalidConfig(f"{what} is not name=value; put quotes around a value that has spaces")
    return name, value
