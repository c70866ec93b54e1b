"""Which requests the HTTP server accepts: names, addresses, and pages of other sites."""

import pytest

from tidemill.servers.http.request_origin import AllowedOrigins

LOOPBACK = AllowedOrigins("127.0.0.1", "127.0.0.1")
EVERYWHERE = AllowedOrigins("0.0.0.0", "0.0.0.0", ["console.example.com", ".svc.cluster.local"], ["host7"])
ONE_ADDRESS = AllowedOrigins("10.0.0.5", "broker-5", ["proxy.example.com"])


def status(callers: AllowedOrigins, host: str | None, method: str = "GET", path: str = "/", **headers: str) -> int:
    sent = [] if host is None else [(b"host", host.encode("latin-1"))]
    sent += [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    refusal = callers.refuse(method, path, sent)
    return 200 if refusal is None else refusal.status


@pytest.mark.parametrize(
    ("callers", "hosts"),
    [
        (LOOPBACK, ["127.0.0.1:8080", "127.0.0.1", "localhost:8080", "LocalHost", "localhost.", "[::1]:8080"]),
        (
            EVERYWHERE,
            ["127.0.0.1:1", "10.1.2.3:8080", "[2001:db8::1]", "localhost", "HOST7:8080", "console.example.com"],
        ),
        (EVERYWHERE, ["tidemill-0.tidemill.svc.cluster.local:8080"]),
        (ONE_ADDRESS, ["10.0.0.5:8080", "broker-5:8080", "proxy.example.com"]),
    ],
)
def test_bound_addresses_and_configured_names_come_in(callers: AllowedOrigins, hosts: list[str]) -> None:
    assert [status(callers, host) for host in hosts] == [200] * len(hosts)


@pytest.mark.parametrize(
    ("callers", "hosts"),
    [
        (
            LOOPBACK,
            ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.5", "host7", "2130706433"],
        ),
        (EVERYWHERE, ["evil.example", "xconsole.example.com", "svc.cluster.local.evil.example", "127.1", "0x7f.0.0.1"]),
        (ONE_ADDRESS, ["127.0.0.1", "localhost", "10.0.0.6", "broker-6"]),
    ],
)
def test_other_names_are_refused(callers: AllowedOrigins, hosts: list[str]) -> None:
    assert [status(callers, host) for host in hosts] == [403] * len(hosts)


@pytest.mark.parametrize(
    "host",
    [None, "", ":8080", "localhost:80a", "a b", "user@localhost", "localhost/", "[::1", "[127.0.0.1]", "a,b", "\x00"],
)
def test_an_invalid_host_is_a_bad_request(host: str | None) -> None:
    assert status(EVERYWHERE, host) == 400


def test_two_hosts_are_a_bad_request() -> None:
    refusal = LOOPBACK.refuse("GET", "/", [(b"host", b"localhost"), (b"host", b"evil.example")])
    assert refusal is not None
    assert refusal.status == 400


def test_probes_are_answered_under_any_name() -> None:
    assert status(LOOPBACK, "pod.internal", path="/health/live") == 200
    assert status(LOOPBACK, None, path="/health/ready") == 200
    assert status(LOOPBACK, "pod.internal", path="/health") == 403


def test_pages_of_other_sites_are_refused() -> None:
    here = "127.0.0.1:8080"
    assert status(LOOPBACK, here, "POST", "/api/v1/sql", origin="http://127.0.0.1:8080") == 200
    for origin in ("http://evil.example", "null", "http://127.0.0.1:9000", "file://", "http://localhost:8080", ""):
        assert status(LOOPBACK, here, "POST", "/api/v1/sql", origin=origin) == 403
        assert status(LOOPBACK, here, "GET", "/api/topics", origin=origin) == 403
    assert status(ONE_ADDRESS, "10.0.0.5:8080", "POST", origin="https://proxy.example.com") == 200, "behind a proxy"


def test_fetch_metadata_headers_decide_cross_site_requests() -> None:
    def fetched(site: str, mode: str, method: str = "GET") -> int:
        return status(LOOPBACK, "localhost", method, sec_fetch_site=site, sec_fetch_mode=mode)

    assert fetched("same-origin", "cors") == fetched("none", "navigate") == 200
    assert fetched("cross-site", "navigate") == 200, "a link on another page"
    assert fetched("cross-site", "no-cors") == fetched("same-site", "cors") == 403
    assert fetched("cross-site", "navigate", "POST") == 403, "a form on another page"


def test_a_star_allows_every_name_and_no_page() -> None:
    anyone = AllowedOrigins("0.0.0.0", "0.0.0.0", ["*"])
    assert status(anyone, "whatever.example") == 200
    for origin in ("null", "http://evil.example"):
        assert status(anyone, "broker:8080", origin=origin) == 403
