"""Parses the ClickHouse URL of the settings.

`chdb:` is the embedded engine in a folder of the data directory, `chdb:/path` in another folder. `?fsync=false`
acknowledges producers before their records are on disk. `clickhouse://user:password@host1:8123,host2:8123/database`
names servers by their HTTP ports. With several servers each owns a range of partitions. `?ranges=0-49,50-99` sets the
ranges, and the last range has no end. `?cluster=NAME` creates tables ON CLUSTER with replicated engines. Then
`host1|host1b` names a server and its replicas: when the owner of the range is lost for `?takeover=SECONDS`, a replica
takes it over. `?secure=true` uses HTTPS and trusts the system's CAs; `?ca=ca.pem` trusts this CA.
`?cert=me.pem&key=me.key` is a client certificate, with which a user without a password logs in.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from tidemill.model.errors import InvalidConfig

EMBEDDED = "chdb"
SERVERS = "clickhouse"
DATABASE = "tidemill"
HTTP_PORT = 8123
HTTPS_PORT = 8443
PARTITION_MAX = 2**31 - 1
BY_RANGE = 0
"""Instead of a number of servers: the ranges place each topic's partitions."""
SPAN = 50
"""The partitions of each server but the last, when the URL has no ranges."""
FILES = ("ca", "cert", "key")
_OPTIONS = {EMBEDDED: {"fsync"}, SERVERS: {"ranges", "cluster", "secure", "takeover", *FILES}}
TAKEOVER_S = 10
"""How long the owner of a range must be lost before a replica takes it over."""
TAKEOVER_MAX_S = 86_400
REPLICAS_MAX = 8


class Server(NamedTuple):
    """One server and the partitions that it owns. The embedded one has a `path` instead of an address.

    `replicas` are the addresses of other servers with the same tables, which may take over.
    """

    host: str
    port: int
    low: int
    high: int
    path: str = ""
    replicas: tuple[tuple[str, int], ...] = ()

    @property
    def name(self) -> str:
        """The name of the server in messages."""
        return self.path or f"{self.host}:{self.port}"

    @property
    def candidates(self) -> tuple["Server", ...]:
        """This server and its replicas, in the order of the URL."""
        return (self, *(self._replace(host=host, port=port) for host, port in self.replicas))


class ServerLayout(NamedTuple):
    """All servers, and how tables are created on them."""

    servers: tuple[Server, ...]
    database: str = DATABASE
    username: str = ""
    password: str = ""
    cluster: str = ""
    secure: bool = False
    ca: str = ""
    cert: str = ""
    key: str = ""
    fsync: bool = True
    takeover_s: int = TAKEOVER_S

    @property
    def replicated(self) -> bool:
        """Whether servers have replicas that may take over."""
        return any(server.replicas for server in self.servers)

    @property
    def embedded(self) -> bool:
        """Whether this is chDB in this process."""
        return bool(self.servers[0].path)

    @property
    def place(self) -> str:
        """The address of the records, without credentials."""
        names = ("|".join(each.name for each in server.candidates) for server in self.servers)
        hosts = ",".join(f"{name}[{server.low}-]" for name, server in zip(names, self.servers, strict=True))
        return f"{SERVERS}://{hosts}/{self.database}"

    @property
    def ranged(self) -> bool:
        """Whether servers own ranges of partitions."""
        return len(self.servers) > 1

    def owner_of(self, partition: int, spread: int = BY_RANGE) -> int:
        """Return the index of the server that stores this partition of a topic with this `tidemill.spread.servers`."""
        if spread > len(self.servers):
            raise InvalidConfig(
                f"the topic was spread over {spread} ClickHouse servers, but --streams names {len(self.servers)}; "
                "name all of them again, in the same order"
            )
        if spread != BY_RANGE:
            return partition % spread
        for place, server in enumerate(self.servers):
            if server.low <= partition <= server.high:
                return place
        raise InvalidConfig(f"no ClickHouse server owns partition {partition}; extend ?ranges= in --streams")


def parse(url: str, data_dir: Path) -> ServerLayout:
    """Parse a URL. InvalidConfig names the problem."""
    scheme, _, rest = url.partition(":")
    if scheme == EMBEDDED:
        return _embedded(rest, data_dir)
    if scheme == SERVERS:
        return _servers(url)
    # The URL may have a password, so only its beginning is shown.
    raise InvalidConfig(f"{scheme[:20]!r} is no ClickHouse URL; use {EMBEDDED}: or {SERVERS}://HOST:PORT/DATABASE")


def _embedded(rest: str, data_dir: Path) -> ServerLayout:
    path, _, query = rest.partition("?")
    options = _options(EMBEDDED, query)
    folder = Path(path.removeprefix("//")) if path else data_dir / EMBEDDED
    server = Server("", 0, 0, PARTITION_MAX, str(folder.absolute()))
    return ServerLayout((server,), fsync=_boolean("fsync", options.get("fsync", "true")))


def _servers(url: str) -> ServerLayout:
    parts = urlsplit(url)
    options = _options(SERVERS, parts.query)
    login, _, hosts = parts.netloc.rpartition("@")
    username, _, password = login.partition(":")
    ca, cert, key = (_file(name, options.get(name, "")) for name in FILES)
    if bool(cert) != bool(key):
        raise InvalidConfig("the ClickHouse URL has only one of cert and key; give both or neither")
    secure = bool(ca or cert) or _boolean("secure", options.get("secure", "false"))
    port = HTTPS_PORT if secure else HTTP_PORT
    addresses = [[_address(text, port) for text in each.split("|")] for each in hosts.split(",")]
    _check_replicas(addresses, options)
    ranges = _ranges(options.get("ranges", ""), len(addresses))
    return ServerLayout(
        tuple(
            Server(*first, *owned, replicas=tuple(others))
            for (first, *others), owned in zip(addresses, ranges, strict=True)
        ),
        database=parts.path.strip("/") or DATABASE,
        username=unquote(username),
        password=unquote(password),
        cluster=options.get("cluster", ""),
        secure=secure,
        ca=ca,
        cert=cert,
        key=key,
        takeover_s=_seconds("takeover", options.get("takeover", str(TAKEOVER_S))),
    )


def _check_replicas(addresses: Sequence[Sequence[tuple[str, int]]], options: Mapping[str, str]) -> None:
    every = [address for each in addresses for address in each]
    twice = next((address for address in every if every.count(address) > 1), None)
    if twice is not None:
        raise InvalidConfig(f"the ClickHouse URL names {twice[0]}:{twice[1]} twice; name each server once")
    if max(map(len, addresses)) > REPLICAS_MAX:
        raise InvalidConfig(f"a range has more than {REPLICAS_MAX} servers; name fewer replicas")
    if len(every) > len(addresses) and not options.get("cluster"):
        raise InvalidConfig("replicas (host1|host2) need replicated tables; add ?cluster=NAME with the cluster's name")
    if len(every) == len(addresses) and "takeover" in options:
        raise InvalidConfig("takeover= applies to servers with replicas; name them like host1|host2")


def _options(scheme: str, query: str) -> Mapping[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(set(options) - _OPTIONS[scheme])
    if unknown:
        raise InvalidConfig(f"{scheme}: has no option {unknown[0]!r}; use one of {', '.join(sorted(_OPTIONS[scheme]))}")
    return options


def _file(name: str, path: str) -> str:
    if path:
        try:
            Path(path).read_bytes()
        except OSError as error:
            raise InvalidConfig(f"the {name} file of ClickHouse, {path}, cannot be read: {error.strerror}") from None
    return path


def _boolean(name: str, text: str) -> bool:
    if text not in {"true", "false"}:
        raise InvalidConfig(f"{name}={text!r} is not a boolean; use true or false")
    return text == "true"


def _seconds(name: str, text: str) -> int:
    if not text.isdecimal() or not text.isascii() or not 1 <= int(text) <= TAKEOVER_MAX_S:
        raise InvalidConfig(f"{name}={text[:20]!r} is not a number of seconds from 1 to {TAKEOVER_MAX_S}")
    return int(text)


def _address(text: str, default_port: int) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = text, str(default_port)
    if not host or not port.isdigit():
        raise InvalidConfig(f"{text!r} is not a ClickHouse server address; use HOST or HOST:PORT")
    return host, int(port)


def _ranges(text: str, servers: int) -> list[tuple[int, int]]:
    if not text:
        lows = [SPAN * place for place in range(servers)]
        return [(low, low + SPAN - 1) for low in lows[:-1]] + [(lows[-1], PARTITION_MAX)]
    ranges = [_range(each) for each in text.split(",")]
    if len(ranges) != servers:
        raise InvalidConfig(f"{len(ranges)} ranges for {servers} servers; give one range per server")
    ranges[-1] = (ranges[-1][0], PARTITION_MAX)
    if ranges[0][0] != 0 or any(after[0] != before[1] + 1 for before, after in pairwise(ranges)):
        raise InvalidConfig(f"ranges={text} must give every partition exactly one server; start at 0 and leave no gap")
    return ranges


def _range(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    if not low.isdigit() or not (high.isdigit() or high == ""):
        raise InvalidConfig(f"{text!r} is not a range of partitions; write it like 0-49")
    return int(low), int(high or low)
