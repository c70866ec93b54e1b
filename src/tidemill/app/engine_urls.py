"""Whether the URLs of engines on other machines verify with whom the broker talks."""

from urllib.parse import parse_qs

from tidemill.model.listeners import is_local
from tidemill.settings import Settings

VERIFIED = {"verify-ca", "verify-full"}
ENCRYPT_WITH = {
    "coordination": "etcds://HOST/FOLDER?ca=ca.pem",
    "streams": "clickhouse://HOST/DATABASE?ca=ca.pem",
    "timelines": "postgresql://HOST/DATABASE?sslmode=verify-full&sslrootcert=ca.pem",
}
"""The URLs that verify the server, by the setting."""


def unverified_engines(settings: Settings) -> list[str]:
    """The settings whose engine is on another machine and is reached without a check of its certificate."""
    urls = {"coordination": settings.coordination, "streams": settings.streams, "timelines": settings.timelines}
    return [name for name, url in urls.items() if not _is_verified(url) and _is_remote(url)]


def _is_verified(url: str) -> bool:
    scheme, options = url.partition(":")[0], _options(url)
    if scheme in {"postgresql", "postgres"}:
        return options.get("sslmode") in VERIFIED
    if scheme == "clickhouse":
        return options.get("secure") == "true" or bool({"ca", "cert"} & options.keys())
    return scheme == "etcds" or bool({"ca", "cert"} & options.keys())


def _is_remote(url: str) -> bool:
    _, has_place, rest = url.partition("://")
    if not has_place:
        return False  # an engine of this process
    place = rest.partition("?")[0].partition("/")[0].rpartition("@")[2]
    # ClickHouse names replicas like host1|host2.
    hosts = [_host(part) for part in (*place.replace("|", ",").split(","), _options(url).get("host", "")) if part]
    return any(not host.startswith("/") and not is_local(host) for host in hosts)


def _host(part: str) -> str:
    if part.startswith("["):
        return part[1:].partition("]")[0]
    return part.partition(":")[0]


def _options(url: str) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(url.partition("?")[2]).items()}
