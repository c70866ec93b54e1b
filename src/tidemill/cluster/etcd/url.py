"""`etcd://host1:2379,host2:2379/folder`: where etcd is, and under which folder of it this cluster keeps its keys."""

from typing import NamedTuple

from tidemill.model.errors import InvalidConfig

SCHEME = "etcd://"
PORT = 2379
FOLDER = "tidemill"


class EtcdUrl(NamedTuple):
    """The members, and the prefix of every key."""

    members: tuple[str, ...]
    prefix: str


def parse(url: str) -> EtcdUrl:
    """The parts of a URL; InvalidConfig says what is wrong with it."""
    if not url.startswith(SCHEME):
        raise InvalidConfig(f"{url!r} is not an address of etcd; write etcd://host1:{PORT},host2:{PORT}")
    hosts, _, folder = url.removeprefix(SCHEME).partition("/")
    members = tuple(_member(part.strip(), url) for part in hosts.split(","))
    return EtcdUrl(members, f"/{folder.strip('/') or FOLDER}/")


def _member(text: str, url: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(PORT)
    if not host or not port.isdigit() or not 0 < int(port) < 65536 or "@" in host:
        raise InvalidConfig(f"{url!r}: {text!r} is not host:port; write etcd://host1:{PORT},host2:{PORT}")
    return f"{host}:{port}"
