"""Parses the etcd URL: `etcd://user:password@host1:2379,host2:2379/folder?ca=ca.pem&cert=me.pem&key=me.key`.

Only the hosts are required. The folder is the prefix of this cluster's keys in etcd. `etcds://`, or any of `ca`, `cert`
and `key`, means TLS. `ca` is the authority that signed etcd's certificate; without it the system's authorities are
trusted. `cert` and `key` are the client certificate, if etcd requires one. User and password are for an etcd with
authentication.
"""

from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from tidemill.model.errors import InvalidConfig

PLAIN, SECURE = "etcd://", "etcds://"
PORT = 2379
FOLDER = "tidemill"
FILES = ("ca", "cert", "key")


class EtcdTls(NamedTuple):
    """The files of TLS; None where the system's defaults apply."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None


class EtcdUrl(NamedTuple):
    """The members, the prefix of every key, and the credentials."""

    members: tuple[str, ...]
    prefix: str
    user: str = ""
    password: str = ""
    tls: EtcdTls | None = None


def parse(url: str) -> EtcdUrl:
    """Parse a URL; InvalidConfig names the problem in the URL or its files, and never contains the password."""
    scheme = next((each for each in (PLAIN, SECURE) if url.startswith(each)), None)
    if scheme is None:
        raise InvalidConfig(f"{url.rpartition('@')[2]!r} is not an etcd URL; write etcd://host1:{PORT},host2:{PORT}")
    place, _, query = url.removeprefix(scheme).partition("?")
    hosts, _, folder = place.partition("/")
    login, _, hosts = hosts.rpartition("@")
    user, _, password = login.partition(":")
    members = tuple(_member(part.strip(), f"{scheme}{hosts}") for part in hosts.split(","))
    if login and (not user or not password):
        raise InvalidConfig(f"the login in the URL of etcd at {hosts} is incomplete; write user:password@")
    given = dict(parse_qsl(query))
    if unknown := sorted(set(given) - set(FILES)):
        raise InvalidConfig(f"unknown option {unknown[0]!r} in the etcd URL; use one of {', '.join(FILES)}")
    tls = _tls(given) if given or scheme == SECURE else None
    return EtcdUrl(members, f"/{folder.strip('/') or FOLDER}/", unquote(user), unquote(password), tls)


def _tls(given: dict[str, str]) -> EtcdTls:
    if ("cert" in given) != ("key" in given):
        raise InvalidConfig("the etcd URL has only one of cert and key; give both or neither")
    return EtcdTls(**{name: _readable(name, Path(path)) for name, path in given.items()})


def _readable(name: str, path: Path) -> Path:
    try:
        path.read_bytes()
    except OSError as error:
        raise InvalidConfig(f"the {name} file of the etcd URL, {path}, cannot be read: {error.strerror}") from None
    return path


def _member(text: str, url: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(PORT)
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise InvalidConfig(f"{url!r}: {text!r} is not host:port; write etcd://host1:{PORT},host2:{PORT}")
    return f"{host}:{port}"
