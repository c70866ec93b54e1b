"""HTTP requests with forged logins, cookies, forms and headers, next to an honest Kafka client."""

import base64
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.hostile.secured import AUDIENCE, ISSUER, SecuredBroker, secured_broker, unsigned
from tests.support.tokens import Issuer

from tidemill.servers.http.core.authorization_table import ROUTES
from tidemill.servers.http.core.route_access import LoginNeed

WAIT_S = 30.0
HONEST_S = 10.0
WRONG_LOGINS = 25
SETTINGS = {"tidemill.http.security": "SASL_PLAINTEXT", "connection.failed.authentication.delay.ms": "1"}
FORM = "content-type: application/x-www-form-urlencoded"
JSON = "content-type: application/json"
QUERY = b'{"query": "SELECT 1"}'
GUARDED = [each for each in ROUTES if each.login is LoginNeed.LOGIN]
EVIL_ISSUER = Issuer("first")


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    with secured_broker(SETTINGS, {"http": "127.0.0.1:0"}) as started:
        before = started.state()
        with started.watched():
            yield started
        assert started.state() == before
        assert '"level": "error"' not in started.log_text()


def raw(broker: SecuredBroker, data: bytes) -> bytes:
    """What the server answers to these bytes until it closes the connection."""
    found = b""
    with socket.create_connection(broker.addresses["http"], WAIT_S) as connection:
        try:
            connection.sendall(data)
            while piece := connection.recv(65_536):
                found += piece
        except ConnectionError:
            pass
    return found


def ask(broker: SecuredBroker, line: str, *headers: str, body: bytes = b"") -> tuple[int, str, str]:
    """Status, head and body of a request with these headers."""
    lines = (f"{line} HTTP/1.1", "host: localhost", "connection: close", f"content-length: {len(body)}", *headers)
    answer = raw(broker, "".join(f"{each}\r\n" for each in lines).encode() + b"\r\n" + body)
    head, _, content = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), head.decode("latin-1"), content.decode()


def basic(name: str, password: str) -> str:
    return "authorization: Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def line_of(method: str, path: str) -> str:
    return f"{method} {path.replace('{name}', 'partitions')}"


def evil_token() -> str:
    return EVIL_ISSUER.token("admin", iss=ISSUER, aud=AUDIENCE)


LOGINS = {
    "none": (),
    "empty": ("authorization:",),
    "only a scheme": ("authorization: Basic",),
    "no base64": ("authorization: Basic !!!!",),
    "no colon": ("authorization: Basic " + base64.b64encode(b"admin").decode(),),
    "nothing in it": ("authorization: Basic " + base64.b64encode(b":").decode(),),
    "no password": (basic("admin", ""),),
    "wrong password": (basic("admin", "admin"),),
    "unknown user": (basic("unknown", "password"),),
    "not UTF-8": ("authorization: Basic " + base64.b64encode(b"admin:\xff").decode(),),
    "NUL": (basic("admin\0", "password"),),
    "long": (basic("admin", "x" * 20_000),),
    "another scheme": ('authorization: Digest username="admin"',),
    "negotiation": ("authorization: Negotiate YII=",),
    "text as a token": ("authorization: Bearer token",),
    "token without a signature": (
        "authorization: Bearer " + unsigned({"alg": "none"}, {"sub": "admin", "exp": 9_999_999_999}),
    ),
    "token of another issuer": ("authorization: Bearer " + evil_token(),),
    "two logins": (basic("admin", "a"), basic("admin", "b")),
    "proxy": ("proxy-authorization: Basic YWRtaW46YWRtaW4=",),
    "header of a proxy": ("x-forwarded-user: admin", "x-remote-user: admin", "remote-user: admin", "x-user: admin"),
    "address of a proxy": ("x-forwarded-for: 127.0.0.1", "forwarded: for=127.0.0.1", "x-real-ip: 127.0.0.1"),
    "certificate of a proxy": ("x-ssl-client-s-dn: CN=admin", "x-client-cert: admin", "ssl-client-verify: SUCCESS"),
    "broker": ("tidemill-peer: broker",),
    "forged broker": ("tidemill-peer: " + base64.urlsafe_b64encode(b"\0" * 120).decode(),),
    "cookie": ("cookie: tidemill-session-80=admin; session=admin",),
    "override": ("x-original-url: /health/live", "x-rewrite-url: /health/live", "x-http-method-override: GET"),
}


GUESSES = {
    "no password",
    "wrong password",
    "unknown user",
    "NUL",
    "long",
    "text as a token",
    "token without a signature",
    "token of another issuer",
}
"""The server delays the answers to wrong passwords and tokens, so these try a few routes. One place checks them all."""


@pytest.mark.parametrize("login", LOGINS)
def test_a_page_is_for_users(broker: SecuredBroker, login: str) -> None:
    for route in GUARDED[::20] if login in GUESSES else GUARDED:
        is_post = route.method == "POST"
        headers = [*LOGINS[login], *([JSON] if is_post else [])]
        line = line_of(route.method, route.path)
        status, _, content = ask(broker, line, *headers, body=QUERY if is_post else b"")
        assert status in {303, 400, 401, 403, 431}, (route.name, content)
        assert "honest" not in content, route.name


def test_the_right_logins_are_accepted(broker: SecuredBroker) -> None:
    """Otherwise everything above could be refused for another reason."""
    token = broker.issuer.token("admin", iss=ISSUER, aud=AUDIENCE)
    for login in (basic("admin", broker.passwords["admin"]), "authorization: Bearer " + token):
        for path in ("/metrics", "/api/status", "/api/topics"):
            assert ask(broker, f"GET {path}", login)[0] == 200


@pytest.mark.parametrize("name", ["mallory", "alice"])
@pytest.mark.parametrize("path", ["/metrics", "/api/status"])
def test_numbers_of_the_cluster_are_for_administrators(broker: SecuredBroker, name: str, path: str) -> None:
    assert ask(broker, f"GET {path}", basic(name, broker.passwords[name]))[0] == 403


@pytest.mark.parametrize(
    "token",
    ["", "x", "a.b.c", "0" * 64, "\x7f", "A" * 8_000, base64.b64encode(bytes(200)).decode(), "..", "null", "{}"],
    ids=range(10),
)
@pytest.mark.parametrize("path", ["/api/tables/partitions", "/api/tables/consumer_offsets", "/api/tables/../sql"])
def test_tables_are_for_brokers(broker: SecuredBroker, path: str, token: str) -> None:
    for login in ((), (basic("admin", broker.passwords["admin"]),)):
        assert ask(broker, f"GET {path}", f"tidemill-peer: {token}", *login)[0] in {400, 401, 403, 404, 431}


def cookies_of(head: str) -> dict[str, str]:
    return dict(re.findall(r"(?im)^set-cookie: ([^=]+)=([^;\r]*)", head))


def open_page(broker: SecuredBroker) -> tuple[str, str]:
    """The token of a login page, and the cookie of the browser."""
    _, head, content = ask(broker, "GET /login")
    found = re.search(r'name="[^"]*" value="([0-9a-f]{64})"', content)
    assert found
    return found[1], "; ".join(f"{name}={value}" for name, value in cookies_of(head).items())


def field_of(broker: SecuredBroker) -> str:
    found = re.search(r'type="hidden" name="([^"]+)"', ask(broker, "GET /login")[2])
    assert found
    return found[1]


def log_in(
    broker: SecuredBroker, name: str, *more: str, cookie: str = "", token: str | None = None
) -> tuple[int, dict[str, str]]:
    """The status and the cookies of a login on the page."""
    page_token, page_cookie = open_page(broker)
    body = f"name={name}&password={broker.passwords[name]}&{field_of(broker)}={page_token if token is None else token}"
    whole = "; ".join(each for each in (page_cookie, cookie) if each)
    status, head, _ = ask(broker, "POST /login", FORM, f"cookie: {whole}", *more, body=body.encode())
    return status, {key: value for key, value in cookies_of(head).items() if "session" in key}


def session(broker: SecuredBroker, name: str) -> str:
    status, cookies = log_in(broker, name)
    assert status == 303
    [(key, value)] = cookies.items()
    return f"{key}={value}"


FORGED_TOKENS = ["", "0" * 64, "x", "'", "null", "0" * 10_000, "\u00fc"]


@pytest.mark.parametrize("token", FORGED_TOKENS, ids=range(len(FORGED_TOKENS)))
def test_a_forged_login_form_is_refused(broker: SecuredBroker, token: str) -> None:
    """A page of an attacker could log a user in as the attacker."""
    status, cookies = log_in(broker, "mallory", token=token)
    assert status in {400, 403}
    assert not cookies


def test_a_token_of_another_browser_is_refused(broker: SecuredBroker) -> None:
    token, _ = open_page(broker)
    status, cookies = log_in(broker, "mallory", token=token)
    assert status == 403
    assert not cookies


def test_a_session_is_not_chosen_by_the_attacker(broker: SecuredBroker) -> None:
    """Fixation: the cookie that was there before the login is worth nothing after it."""
    [(name, honest)] = log_in(broker, "admin")[1].items()
    planted = "A" * len(honest)
    _, cookies = log_in(broker, "admin", cookie=f"{name}={planted}")
    assert cookies[name] != planted
    assert ask(broker, "GET /metrics", f"cookie: {name}={planted}")[0] in {303, 401}
    assert ask(broker, "GET /metrics", f"cookie: {name}={cookies[name]}")[0] == 200


COOKIES = [
    "",
    "admin",
    "0",
    "-1",
    "null",
    "../../x",
    "A" * 43,
    "A" * 7_000,
    "'or'1'='1",
    "User:admin",
    "%00",
    '"admin"',
]


@pytest.mark.parametrize("value", COOKIES, ids=range(len(COOKIES)))
def test_a_forged_session_is_refused(broker: SecuredBroker, value: str) -> None:
    name = session(broker, "admin").partition("=")[0]
    for cookie in (f"{name}={value}", f"{name.upper()}={value}", f"{name}={value}; {name}={value}"):
        assert ask(broker, "GET /metrics", f"cookie: {cookie}")[0] in {303, 400, 401, 431}


def test_a_session_that_was_ended_is_worth_nothing(broker: SecuredBroker) -> None:
    cookie = session(broker, "admin")
    page = ask(broker, "GET /", f"cookie: {cookie}")[2]
    token = re.search(r'value="([0-9a-f]{64})"', page)
    assert token
    status, _, _ = ask(
        broker, "POST /logout", FORM, f"cookie: {cookie}", body=f"{field_of(broker)}={token[1]}".encode()
    )
    assert status == 303
    assert ask(broker, "GET /metrics", f"cookie: {cookie}")[0] in {303, 401}


def test_two_sessions_in_one_request_are_none(broker: SecuredBroker) -> None:
    mine, other = session(broker, "mallory"), session(broker, "admin")
    assert ask(broker, "GET /metrics", f"cookie: {mine}; {other}")[0] in {303, 401}


def test_a_login_in_the_request_counts_before_a_session(broker: SecuredBroker) -> None:
    """A stolen cookie next to the attacker's own login is not a way around either."""
    cookie = session(broker, "admin")
    assert ask(broker, "GET /metrics", f"cookie: {cookie}", basic("mallory", broker.passwords["mallory"]))[0] == 403
    assert ask(broker, "GET /metrics", f"cookie: {cookie}", basic("mallory", "wrong"))[0] == 401


PAGES = [
    "https://evil.example",
    "null",
    "http://localhost.evil.example",
    "http://evil.example:80",
    "file://",
    "http://[::1",
    "",
]


@pytest.mark.parametrize("origin", PAGES)
@pytest.mark.parametrize("line", ["POST /login", "POST /logout", "POST /api/v1/sql", "GET /metrics"])
def test_a_page_of_another_site_uses_no_session(broker: SecuredBroker, line: str, origin: str) -> None:
    cookie = session(broker, "admin")
    status, _, _ = ask(
        broker, line, f"cookie: {cookie}", f"origin: {origin}", JSON if "sql" in line else FORM, body=QUERY
    )
    assert status in {400, 403}


@pytest.mark.parametrize("token", [None, *FORGED_TOKENS[:6]], ids=range(7))
def test_a_change_in_a_session_needs_its_token(broker: SecuredBroker, token: str | None) -> None:
    cookie = session(broker, "admin")
    more = [] if token is None else [f"x-csrf-token: {token}"]
    assert ask(broker, "POST /api/v1/sql", JSON, f"cookie: {cookie}", *more, body=QUERY)[0] == 403
    body = f"{field_of(broker)}={token or ''}".encode()
    assert ask(broker, "POST /logout", FORM, f"cookie: {cookie}", body=body)[0] in {400, 403}
    assert ask(broker, "GET /metrics", f"cookie: {cookie}")[0] == 200


HOSTS = [
    "evil.example",
    "localhost.evil.example",
    "169.254.169.254",
    "localhost@evil.example",
    "evil.example:80",
    "[::ffff:1.2.3.4]",
]


@pytest.mark.parametrize("host", HOSTS)
def test_a_name_that_points_here_is_refused(broker: SecuredBroker, host: str) -> None:
    """DNS rebinding, with the right login too."""
    login = basic("admin", broker.passwords["admin"])
    data = f"GET /metrics HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{login}\r\n\r\n"
    assert raw(broker, data.encode()).split(b" ", 2)[1] in {b"400", b"403"}


BOMBS = {
    "many headers": b"".join(b"x-%d: 1\r\n" % number for number in range(5_000)),
    "a long header": b"x: " + b"a" * 1_000_000 + b"\r\n",
    "a long name": b"a" * 100_000 + b": 1\r\n",
    "no colon": b"x" * 1_000 + b"\r\n",
    "two lengths": b"content-length: 1\r\ncontent-length: 2\r\n",
    "length and chunks": b"content-length: 4\r\ntransfer-encoding: chunked\r\n",
    "negative length": b"content-length: -1\r\n",
    "huge length": b"content-length: 99999999999999999999\r\n",
    "chunks of chunks": b"transfer-encoding: chunked, chunked\r\n",
    "unknown encoding": b"transfer-encoding: xchunked\r\n",
    "folded": b"authorization: Basic\r\n YWRtaW46YWRtaW4=\r\n",
    "line feeds only": b"x: 1\ny: 2\n",
    "NUL": b"x: \0\r\n",
    "many cookies": b"cookie: " + b"; ".join(b"a%d=1" % number for number in range(5_000)) + b"\r\n",
    "many ranges": b"range: bytes=" + b",".join(b"%d-" % number for number in range(2_000)) + b"\r\n",
    "upgrade": b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: x\r\nsec-websocket-version: 13\r\n",
    "expect": b"expect: 100-continue\r\ncontent-length: 5\r\n",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_headers_that_are_bombs(broker: SecuredBroker, bomb: str) -> None:
    for line in (b"GET /metrics HTTP/1.1", b"POST /login HTTP/1.1"):
        data = line + b"\r\nhost: localhost\r\nconnection: close\r\n" + BOMBS[bomb] + b"\r\n0\r\n\r\n"
        answer = raw(broker, data)
        assert not answer or answer.split(b" ", 2)[1] != b"200"
        assert answer.count(b"HTTP/1.1 ") <= 2


LINES = {
    "traversal": b"GET /../../etc/passwd HTTP/1.1",
    "escaped traversal": b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1",
    "two slashes": b"GET //metrics HTTP/1.1",
    "escaped path": b"GET /%6d%65trics HTTP/1.1",
    "a dot": b"GET /./metrics HTTP/1.1",
    "parameters": b"GET /health/live;/../../metrics HTTP/1.1",
    "capitals": b"GET /METRICS HTTP/1.1",
    "slash behind": b"GET /metrics/ HTTP/1.1",
    "whole address": b"GET http://localhost/metrics HTTP/1.1",
    "address of another": b"GET http://evil.example/ HTTP/1.1",
    "connect": b"CONNECT evil.example:443 HTTP/1.1",
    "trace": b"TRACE /metrics HTTP/1.1",
    "options": b"OPTIONS * HTTP/1.1",
    "head": b"HEAD /metrics HTTP/1.1",
    "put": b"PUT /metrics HTTP/1.1",
    "delete": b"DELETE /api/topics HTTP/1.1",
    "own method": b"ADMIN /metrics HTTP/1.1",
    "small letters": b"get /metrics HTTP/1.1",
    "HTTP/1.0": b"GET /metrics HTTP/1.0",
    "HTTP/0.9": b"GET /metrics",
    "HTTP/2": b"PRI * HTTP/2.0",
    "HTTP/9": b"GET /metrics HTTP/9.9",
    "long": b"GET /" + b"a" * 200_000 + b" HTTP/1.1",
    "not ASCII": b"GET /\xff\xfe HTTP/1.1",
    "line feed": b"GET /metrics%0d%0aset-cookie:x=1 HTTP/1.1",
}


@pytest.mark.parametrize("line", LINES)
def test_lines_that_look_for_a_way_around(broker: SecuredBroker, line: str) -> None:
    answer = raw(broker, LINES[line] + b"\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    assert not answer or answer.split(b" ", 2)[1] not in {b"200", b"500"}
    assert b"root:" not in answer
    assert b"\r\nset-cookie:x=1" not in answer


def test_wrong_passwords_do_not_slow_a_known_user_down(broker: SecuredBroker) -> None:
    """Wrong ones are answered later and later; a login that was right before is not a guess."""
    honest = basic("admin", broker.passwords["admin"])
    assert ask(broker, "GET /metrics", honest)[0] == 200
    with ThreadPoolExecutor(8) as attackers:
        guesses = [
            attackers.submit(ask, broker, "GET /metrics", basic("admin", f"{number}")) for number in range(WRONG_LOGINS)
        ]
        slowest = 0.0
        while not all(each.done() for each in guesses):
            began = time.monotonic()
            assert ask(broker, "GET /metrics", honest)[0] == 200
            slowest = max(slowest, time.monotonic() - began)
            time.sleep(0.05)
        assert {each.result()[0] for each in guesses} <= {401, 503}
    print(f"slowest honest answer {slowest:.3f} s")
    assert slowest < HONEST_S


def test_a_refusal_says_the_same_for_every_user(broker: SecuredBroker) -> None:
    answers = {ask(broker, "GET /metrics", basic(name, "wrong"))[2] for name in ("admin", "alice", "unknown")}
    assert len(answers) == 1
