"""Cookies are read strictly, and written with every protection that browsers have."""

import pytest

from tidemill.servers.http.core.cookies import cookie_header, cookie_name, cookie_value


def test_a_cookie_of_a_tls_server_is_bound_to_its_host() -> None:
    name = cookie_name("session", 8443, is_secure=True)
    assert cookie_header(name, "id", max_age_s=60, is_secure=True) == (
        "__Host-tidemill-session-8443=id; Path=/; Max-Age=60; HttpOnly; SameSite=Strict; Secure"
    )


def test_a_cookie_without_tls_has_no_claim_that_browsers_would_refuse() -> None:
    name = cookie_name("session", 8080, is_secure=False)
    assert cookie_header(name, "", max_age_s=0, is_secure=False) == (
        "tidemill-session-8080=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"
    )


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        ([b"a=1"], "1"),
        ([b"b=2; a=1"], "1"),
        ([b"b=2", b" a = 1 "], "1"),
        ([b"a=1=2"], "1=2"),
        ([b"a=1; a=2"], None),
        ([b"a=1", b"a=1"], None),
        ([b"aa=1"], None),
        ([b"a"], None),
        ([b"\xff\xfe"], None),
        ([], None),
    ],
)
def test_the_value_of_a_cookie(lines: list[bytes], value: str | None) -> None:
    headers = [(b"host", b"a=9"), *((b"cookie", line) for line in lines)]
    assert cookie_value(headers, "a") == value
