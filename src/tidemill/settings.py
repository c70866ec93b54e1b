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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from tidemill.model import broker_settings
from tidemill.model.broker_settings import BrokerSettings
from tidemill.model.errors import InvalidConfig
from tidemill.model.locations import UnsupportedLocation, local_path
from tidemill.model.security_settings import LISTENER_PREFIX

CONFIG_FILE = "tidemill.toml"
PREFIX = "TIDEMILL_"
PORT_MAX = 65535
ROLES = ("overseer", "carrier")
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("auto", "human", "json")
NODE_ID_MAX = 2**31 - 1
SESSION_TTL_MS_MIN = 100
_HOST_NAME = re.compile(r"\*|\.?[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?|[0-9A-Fa-f:]+")
_PASSWORD = re.compile(r"(password=)[^&]*", re.IGNORECASE)


class Address(NamedTuple):
    """The address that a server listens on or that clients connect to."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


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
    advertise: Address | None
    node_id: int
    rack: str | None
    session_ttl_ms: int
    roles: tuple[str, ...]
    coordination: str
    cluster_secret: str | None
    streams: str
    timelines: str
    log_level: str
    log_format: str
    broker: BrokerSettings


def parse_address(text: str) -> Address:
    """Parse `host:port` or `[IPv6]:port`. Port 0 picks a free port."""
    host, colon, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise InvalidConfig(f"{text!r} is not host:port; write an IPv6 address as [::1]:9092")
    if not colon or not host or not (port.isascii() and port.isdigit()):
        raise InvalidConfig(f"{text!r} is not host:port; write for example 127.0.0.1:9092")
    if int(port) > PORT_MAX:
        raise InvalidConfig(f"port {port} in {text!r} is not between 0 and {PORT_MAX}")
    return Address(host, int(port))


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


def _engine(*schemes: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        scheme = text.partition(":")[0]
        if ":" not in text or scheme not in schemes:
            raise InvalidConfig(
                f"{shown(text)!r} does not start with one of {', '.join(f'{each}:' for each in schemes)}"
            )
        return text

    return read


def _folder(text: str) -> Path:
    try:
        return Path(local_path(text))
    except UnsupportedLocation as error:
        raise InvalidConfig(str(error)) from None


def _timelines(text: str) -> str:
    """Check the URL of a timeline engine. A SQLite URL may name a file."""
    url = _engine("sqlite", "memory", "postgresql", "postgres")(text)
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
    Row("advertise", "", _optional_address, "Address that Kafka clients connect to. Default: the address of --kafka."),
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
        "sqlite:",
        _timelines,
        "Storage of timelines: sqlite:, memory: or postgresql://...",
    ),
    Row("log-level", "info", _one_of(*LOG_LEVELS), "Lowest level that is logged."),
    Row(
        "log-format",
        "auto",
        _one_of(*LOG_FORMATS),
        "Log format: human, json, or auto (human on a terminal, json elsewhere).",
    ),
)
_BY_NAME = {row.name: row for row in ROWS}
_BY_VARIABLE = {row.variable: row for row in ROWS}
CONFIG_VARIABLE = PREFIX + "CONFIG"
SET_VARIABLE = PREFIX + "SET"
CLIENT_VARIABLE = PREFIX + "CLIENT"
"""Configures the client commands. A broker ignores it."""


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
    in_file: dict[str, str] = {}
    broker_in_file: dict[str, str] = {}
    if folder is not None:
        in_file, broker_in_file = _read_file(folder / (named or CONFIG_FILE), must_exist=bool(named))
    values = {}
    for row in ROWS:
        text, where = _choose(row, given_flags, environ, in_file)
        try:
            values[row.field] = row.read(text)
        except InvalidConfig as error:
            raise InvalidConfig(f"{where}: {error}") from None
    _refuse_unknown_variables(environ)
    overrides = {**broker_in_file, **_pairs(environ.get(SET_VARIABLE, "")), **(broker or {})}
    return Settings(**values, broker=broker_settings.parse(overrides))


def _choose(
    row: Row, flags: Mapping[str, str], environ: Mapping[str, str], in_file: Mapping[str, str]
) -> tuple[str, str]:
    if row.name in flags:
        return flags[row.name], f"--{row.name}"
    if row.variable in environ:
        return environ[row.variable], row.variable
    return in_file.get(row.name, row.default), row.name


def _refuse_unknown_variables(environ: Mapping[str, str]) -> None:
    known = {*_BY_VARIABLE, CONFIG_VARIABLE, SET_VARIABLE, CLIENT_VARIABLE}
    _refuse_unknown((name for name in environ if name.startswith(PREFIX)), known, "environment variable")


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
    broker = document.pop("broker", {})
    if not isinstance(broker, dict):
        raise InvalidConfig(f"{path}: broker is not a table; write [broker]")
    try:
        _refuse_unknown(document, {*_BY_NAME, "broker"}, "key")
        in_broker = (name for name, _ in _flat(broker) if not name.startswith(LISTENER_PREFIX))
        _refuse_unknown(in_broker, broker_settings.SETTINGS, "key in [broker]")
        return {name: _as_text(name, value) for name, value in document.items()}, dict(_flat(broker))
    except InvalidConfig as error:
        raise InvalidConfig(f"{path}: {error}") from None


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
        raise InvalidConfig(f"{text!r} is not name=value")
    return name, value
