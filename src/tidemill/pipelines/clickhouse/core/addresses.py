"""Addresses of tables: a ClickHouse server, or the folder of the embedded engine chDB."""

from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from tidemill.model.locations import UnsupportedLocation, local_path
from tidemill.pipelines.errors import WrongOption

EMBEDDED = "chdb:"
DATABASE = "default"
PORT, SECURE_PORT = 8123, 8443


class TableAddress(NamedTuple):
    """A server, or the folder of an embedded engine (`path`)."""

    host: str = ""
    port: int = PORT
    database: str = DATABASE
    username: str = ""
    password: str = ""
    secure: bool = False
    path: str = ""

    def __str__(self) -> str:
        return f"chDB in {self.path}" if self.path else f"ClickHouse at {self.host}:{self.port}"


def parse_address(url: str) -> TableAddress:
    """Parse `chdb:folder` or `http[s]://user:password@host:port/database` (`clickhouse://` means http)."""
    if url.startswith(EMBEDDED):
        path = url.removeprefix(EMBEDDED).removeprefix("//")
        if not path:
            raise WrongOption(f"{url!r} names no folder; write chdb:path/of/a/folder")
        try:
            return TableAddress(path=local_path(path))
        except UnsupportedLocation as error:
            raise WrongOption(f"{EMBEDDED} {error}") from None
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise WrongOption(f"{url!r} is not an address: {error}") from None
    if parts.scheme not in {"http", "https", "clickhouse"} or not host:
        raise WrongOption(f"{url!r} is neither http[s]://host:port/database nor chdb:folder")
    secure = parts.scheme == "https"
    return TableAddress(
        host,
        port or (SECURE_PORT if secure else PORT),
        parts.path.strip("/") or DATABASE,
        unquote(parts.username or ""),
        unquote(parts.password or ""),
        secure,
    )
