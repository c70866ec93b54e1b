"""The HTTP server of a broker that authenticates: logins, sessions, and what each user may see."""

import re
import ssl
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
)
from tests.support.browser import WAIT_S, FormBrowser, hidden_fields
from tests.support.certificates import Authority
from tests.support.password_users import set_password
from tests.support.tokens import Issuer
from tests.support.waiting import eventually

from tidemill import Message, Timeline
from tidemill.security.core.peer_token import PeerCall, PeerClaims, PeerStamp, write_peer_token
from tidemill.security.core.principal import user
from tidemill.servers.http.console.static import static_path
from tidemill.servers.http.core.authorization_table import ROUTES
from tidemill.servers.http.core.route_access import LoginNeed
from tidemill.sql.core.diagnostics import DIAGNOSES
from tidemill.testing import Broker

ADMIN, PASSWORD = "admin", "admin-password"
CLUSTER_SECRET = "cluster-secret"
USERS = ("alice", "bob", "<b>eve</b>", "name:with:colons")
Grant = tuple[str, ResourceType, str, AclOperation]
GRANTS: tuple[Grant, ...] = (
    ("alice", ResourceType.TOPIC, "orders", AclOperation.READ),
    ("alice", ResourceType.GROUP, "shop", AclOperation.DESCRIBE),
    ("bob", ResourceType.TOPIC, "orders", AclOperation.DESCRIBE),
    ("bob", ResourceType.TOPIC, "secret", AclOperation.DESCRIBE_CONFIGS),
    ("CN=robot", ResourceType.TOPIC, "orders", AclOperation.READ),
    ("token-user", ResourceType.TOPIC, "orders", AclOperation.READ),
    ("<b>eve</b>", ResourceType.TOPIC, "orders", AclOperation.DESCRIBE),
    # The gRPC server of this broker logs no clients in.
    ("ANONYMOUS", ResourceType.TOPIC, "orders", AclOperation.ALL),
    ("ANONYMOUS", ResourceType.TOPIC, "hidden", AclOperation.ALL),
)


class GuardedHttp:
    """A broker with users and ACLs, and clients of its HTTP server."""

    def __init__(self, broker: Broker, authority: Authority, issuer: Issuer) -> None:
        self.broker, self.authority, self.issuer = broker, authority, issuer
        self.context = ssl.create_default_context(cafile=authority.path)
        self.kafka = {
            "bootstrap.servers": broker.listener("SASL_SSL"),
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": authority.path,
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": ADMIN,
            "sasl.password": PASSWORD,
        }
        self.admin = AdminClient(self.kafka)

    def get(self, path: str, name: str = "", **options: Any) -> httpx.Response:
        login = (name, f"{name}-password") if name else None
        return httpx.get(f"{self.broker.http}{path}", auth=login, verify=self.context, timeout=WAIT_S, **options)

    def ask(self, name: str, sql: str, **options: Any) -> httpx.Response:
        return httpx.post(
            f"{self.broker.http}/api/v1/sql",
            json={"query": sql},
            auth=(name, f"{name}-password"),
            verify=self.context,
            timeout=WAIT_S,
            **options,
        )

    def rows(self, name: str, sql: str) -> list[list[Any]]:
        answer = self.ask(name, sql)
        assert answer.status_code == 200, answer.text
        rows: list[list[Any]] = answer.json()["rows"]
        return rows

    def browser(self) -> FormBrowser:
        return FormBrowser(self.broker.http, self.context)

    def remove(self, name: str) -> None:
        wanted = UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_256)
        self.admin.alter_user_scram_credentials([wanted])[name].result(WAIT_S)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedHttp]:
    folder = tmp_path_factory.mktemp("security")
    authority, issuer = Authority(folder / "certificates"), Issuer("key-1")
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.keystore.location": authority.issue("/CN=broker", "broker"),
        "ssl.truststore.location": authority.path,
        "ssl.client.auth": "requested",
        "sasl.oauthbearer.jwks.endpoint.url": issuer.publish(folder / "keys.json"),
        "connection.failed.authentication.delay.ms": "0",
        "tidemill.grpc.security": "PLAINTEXT",
    }
    flags = {"cluster-secret": CLUSTER_SECRET}
    with Broker(settings=settings, flags=flags, admin_password=PASSWORD) as broker:
        made = GuardedHttp(broker, authority, issuer)
        fill(made)
        yield made


def fill(guarded: GuardedHttp) -> None:
    admin = guarded.admin
    topics = [NewTopic("orders", 2, 1, config={"retention.ms": "-1"}), NewTopic("secret", 1, 1)]
    for future in admin.create_topics(topics).values():
        future.result(WAIT_S)
    producer = Producer(guarded.kafka)
    producer.produce("orders", b"tea", partition=0)
    producer.produce("secret", b"the launch code", partition=0)
    assert producer.flush(WAIT_S) == 0
    for group in ("shop", "spies"):
        reader = Consumer({**guarded.kafka, "group.id": group, "enable.auto.commit": False})
        reader.commit(offsets=[TopicPartition("orders", 0, 0), TopicPartition("secret", 0, 0)], asynchronous=False)
        reader.close()
    for name in USERS:
        set_password(guarded.admin, name, f"{name}-password")
    bindings = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{who}", "*", operation, AclPermissionType.ALLOW)
        for who, kind, name, operation in GRANTS
    ]
    for future in admin.create_acls(bindings).values():
        future.result(WAIT_S)


def test_pages_need_a_login(guarded: GuardedHttp) -> None:
    for access in ROUTES:
        answer = httpx.request(
            access.method, f"{guarded.broker.http}{access.path}", verify=guarded.context, timeout=WAIT_S
        )
        expected = {LoginNeed.LOGIN: {401}, LoginNeed.BROKER: {403}}.get(access.login, {200, 400, 401, 404})
        assert answer.status_code in expected, access.path
        if answer.status_code == 401:
            assert answer.headers.get_list("www-authenticate") == ['Basic realm="tidemill", charset="UTF-8"', "Bearer"]


def test_a_person_is_sent_to_the_login_page(guarded: GuardedHttp) -> None:
    with guarded.browser() as browser:
        found = browser.open("/")
        assert found.url.path == "/login"
        assert 'type="password"' in found.text
        assert browser.get("/api/topics", headers={"sec-fetch-mode": "cors"}).status_code == 401


def test_a_browser_is_not_asked_for_a_password_that_it_would_keep(guarded: GuardedHttp) -> None:
    answer = guarded.get("/api/topics", headers={"sec-fetch-mode": "cors", "sec-fetch-site": "same-origin"})
    assert answer.status_code == 401
    assert "www-authenticate" not in answer.headers


def test_basic_logins(guarded: GuardedHttp) -> None:
    assert guarded.get("/metrics", ADMIN).status_code == 200
    for wrong in (("alice", "wrong"), ("unknown", "alice-password"), ("alice", "")):
        answer = httpx.get(f"{guarded.broker.http}/api/topics", auth=wrong, verify=guarded.context, timeout=WAIT_S)
        assert answer.status_code == 401
        assert set(answer.json()) == {"error"}
    twice = guarded.get("/api/topics", headers=[("authorization", "Basic YTpi"), ("authorization", "Basic YTpi")])
    assert twice.status_code == 401


def test_bearer_logins(guarded: GuardedHttp) -> None:
    def topics(token: str) -> httpx.Response:
        return guarded.get("/api/topics", headers={"authorization": f"Bearer {token}"})

    found = topics(guarded.issuer.token("token-user"))
    assert [each["name"] for each in found.json()["topics"]] == ["orders"]
    assert topics(guarded.issuer.token("token-user", exp=int(time.time()) - 3600)).status_code == 401
    assert topics(Issuer("key-1").token("token-user")).status_code == 401


def test_certificate_logins(guarded: GuardedHttp) -> None:
    own = ssl.create_default_context(cafile=guarded.authority.path)
    own.load_cert_chain(guarded.authority.issue("/CN=robot", "robot"))
    found = httpx.get(f"{guarded.broker.http}/api/topics", verify=own, timeout=WAIT_S)
    assert [each["name"] for each in found.json()["topics"]] == ["orders"]
    foreign = ssl.create_default_context(cafile=guarded.authority.path)
    foreign.load_cert_chain(Authority(guarded.broker.data_dir.parent / "foreign-ca").issue("/CN=robot", "robot"))
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{guarded.broker.http}/api/topics", verify=foreign, timeout=WAIT_S)


def test_a_session_begins_and_ends(guarded: GuardedHttp) -> None:
    with guarded.browser() as browser:
        found = browser.log_in("alice", "alice-password")
        assert (found.status_code, found.url.path) == (200, "/")
        assert "The state of the cluster is shown to users who may DESCRIBE the cluster." in found.text
        assert "orders" in browser.get("/topics").text
        assert "secret" not in found.text + browser.get("/topics").text
        assert "alice" in found.text
        assert browser.get("/api/topics").status_code == 200
        assert [each.name for each in browser.cookies.jar] == [_cookie("session", guarded)]
        out = browser.submit("/logout", hidden_fields(browser.open("/")))
        assert out.url.path == "/login"
        assert browser.get("/api/topics").status_code == 401


def test_a_name_may_have_what_basic_logins_cannot_send(guarded: GuardedHttp) -> None:
    with guarded.browser() as browser:
        page = browser.log_in("name:with:colons", "name:with:colons-password")
        assert (page.status_code, page.url.path) == (200, "/")
    with guarded.browser() as browser:
        assert browser.log_in("name", "with:colons:name:with:colons-password").status_code == 401


def test_cookies_cannot_be_read_or_sent_by_others(guarded: GuardedHttp) -> None:
    with guarded.browser() as browser:
        browser.follow_redirects = False
        page = browser.open("/login")
        answer = browser.submit("/login", {**hidden_fields(page), "name": "alice", "password": "alice-password"})
        lines = [page.headers["set-cookie"], *answer.headers.get_list("set-cookie")]
    assert all(line.startswith("__Host-tidemill-") for line in lines)
    assert all(line.endswith("; HttpOnly; SameSite=Strict; Secure") and "; Path=/;" in line for line in lines)
    session = next(line for line in lines if "session" in line)
    assert re.search(r"=[A-Za-z0-9_-]{43}; .*Max-Age=43200;", session)


def test_a_login_gets_a_new_session(guarded: GuardedHttp) -> None:
    with guarded.browser() as browser, guarded.browser() as old:
        planted = "a" * 43
        browser.cookies.set(_cookie("session", guarded), planted, domain="127.0.0.1", path="/")
        browser.log_in("alice", "alice-password")
        first = _session(browser, guarded)
        assert first != planted
        browser.log_in("alice", "alice-password")
        assert _session(browser, guarded) != first
        old.cookies.set(_cookie("session", guarded), first, domain="127.0.0.1", path="/")
        assert old.get("/api/topics").status_code == 401


def test_forged_forms_are_refused(guarded: GuardedHttp) -> None:
    login = {"name": "alice", "password": "alice-password"}
    with guarded.browser() as browser, guarded.browser() as other:
        stolen = hidden_fields(other.open("/login"))
        browser.open("/login")
        for fields in (login, {**login, "token": "0" * 64}, {**login, **stolen}):
            answer = browser.submit("/login", fields)
            assert answer.status_code == 403
            assert "expired" in answer.text
        foreign = {**hidden_fields(browser.open("/login")), **login}
        own = guarded.broker.http
        for origin in ("https://evil.example", own.replace("https://", "http://"), "null", f"{own}.evil.example"):
            assert browser.submit("/login", foreign, origin=origin).status_code == 403
        browser.log_in("alice", "alice-password")
        assert browser.submit("/logout", {}).status_code == 403
        assert browser.submit("/logout", {"token": "0" * 64}).status_code == 403
        assert browser.post("/api/v1/sql", json={"query": "SELECT 1"}).status_code == 403
        token = hidden_fields(browser.open("/"))["token"]
        answer = browser.post("/api/v1/sql", json={"query": "SELECT 1"}, headers={"x-csrf-token": token})
        assert answer.json()["rows"] == [[1]]


def test_a_wrong_login_shows_the_page_again(guarded: GuardedHttp) -> None:
    with guarded.browser() as browser:
        name = '"><script>alert(1)</script>'
        answer = browser.log_in(name, "wrong")
        assert answer.status_code == 401
        assert "The user or the password is wrong." in answer.text
        assert "<script>" not in answer.text
        assert not [each for each in browser.cookies.jar if "session" in each.name]


def test_forms_are_bounded(guarded: GuardedHttp) -> None:
    with guarded.browser() as browser:
        hidden = hidden_fields(browser.open("/login"))
        for content in (b"x" * 10_000, b"a=1&" * 100, b"name=a&name=b", b"name=%ff", b"\xff"):
            headers = {"content-type": "application/x-www-form-urlencoded"}
            assert browser.post("/login", content=content, headers=headers).status_code == 400
        assert browser.post("/login", json=hidden).status_code == 400
        assert browser.log_in("a" * 300, "b").status_code == 401
        assert browser.log_in("alice", "b" * 2000).status_code == 401


@pytest.mark.parametrize("change", ["password", "removal"])
def test_a_session_ends_with_the_password(guarded: GuardedHttp, change: str) -> None:
    name = f"dave-{change}"
    set_password(guarded.admin, name, "first")
    with guarded.browser() as browser:
        assert browser.log_in(name, "first").status_code == 200
        assert browser.get("/api/topics").status_code == 200
        if change == "password":
            set_password(guarded.admin, name, "second")
        else:
            guarded.remove(name)
        eventually(lambda: browser.get("/api/topics").status_code == 401)


def test_a_session_expires(guarded: GuardedHttp) -> None:
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "tidemill.http.session.ms": "1000",
        "connection.failed.authentication.delay.ms": "0",
    }
    with (
        Broker(settings=settings, flags={"grpc": "none"}, admin_password=PASSWORD) as broker,
        FormBrowser(broker.http) as browser,
    ):
        assert browser.log_in(ADMIN, PASSWORD).status_code == 200
        session = next(each for each in browser.cookies.jar if "session" in each.name)
        browser.cookies.clear()

        def status() -> int:
            return httpx.get(
                f"{broker.http}/api/topics", headers={"cookie": f"{session.name}={session.value}"}, timeout=WAIT_S
            ).status_code

        assert status() == 200
        eventually(lambda: status() == 401)


def test_probes_are_open_and_health_shows_little(guarded: GuardedHttp) -> None:
    assert guarded.get("/health/live").text == "live\n"
    assert guarded.get("/health/ready").text == "ready\n"
    for name in ("", "alice"):
        assert guarded.get("/health", name).json() == {"state": "healthy", "member": True}
    whole = guarded.get("/health", ADMIN).json()
    assert whole["anonymous_clients"] is False
    assert whole["security"] == [
        {"server": "kafka", "listener": "SASL_SSL", "protocol": "SASL_SSL", "authenticates": True},
        {"server": "grpc", "protocol": "PLAINTEXT", "authenticates": False},
        {"server": "http", "protocol": "SASL_SSL", "authenticates": True},
    ]


def test_numbers_of_the_cluster_need_a_right(guarded: GuardedHttp) -> None:
    for path in ("/metrics", "/api/status"):
        answer = guarded.get(path, "alice")
        assert answer.status_code == 403
        assert "User:alice may not DESCRIBE CLUSTER" in answer.text
        assert "tidemill acl grant" in answer.text
        assert guarded.get(path, ADMIN).status_code == 200


def test_listings_leave_out_what_a_user_may_not_describe(guarded: GuardedHttp) -> None:
    def topics(name: str) -> dict[str, dict[str, str]]:
        return {each["name"]: each["overrides"] for each in guarded.get("/api/topics", name).json()["topics"]}

    assert topics("alice") == {"orders": {}}
    assert topics("bob") == {"orders": {}}
    every = topics(ADMIN)
    assert every["orders"] == {"retention.ms": "-1"}
    assert {"orders", "secret"} <= set(every)


def test_names_are_shown_as_text(guarded: GuardedHttp) -> None:
    with guarded.browser() as browser:
        page = browser.log_in("<b>eve</b>", "<b>eve</b>-password")
        assert page.status_code == 200
        assert "&lt;b&gt;eve&lt;/b&gt;" in page.text
        assert "<b>eve" not in page.text


def test_headers_of_pages(guarded: GuardedHttp) -> None:
    with guarded.browser() as browser:
        page = browser.open("/login")
        assert "form-action 'self'" in page.headers["content-security-policy"]
        front = browser.log_in("alice", "alice-password")
        topics = browser.get("/api/topics")
        style = browser.get(static_path("console.css"))
    for answer in (page, front, topics):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
    assert "form-action 'none'" in topics.headers["content-security-policy"]
    assert not re.search(r"<style|<script>|<script (?!src=)|\son\w+=|style=", front.text + page.text)
    assert "<script" not in page.text, "the login page works without scripts"
    assert "script-src" not in page.headers["content-security-policy"]
    assert style.headers["content-type"] == "text/css; charset=utf-8"
    assert style.headers["cache-control"] == "public, max-age=31536000, immutable"


def test_the_address_of_a_client_cannot_be_forged(guarded: GuardedHttp) -> None:
    binding = AclBinding(
        ResourceType.BROKER,
        "kafka-cluster",
        ResourcePatternType.LITERAL,
        "User:bob",
        "10.9.8.7",
        AclOperation.DESCRIBE,
        AclPermissionType.ALLOW,
    )
    guarded.admin.create_acls([binding])[binding].result(WAIT_S)
    forged = {"x-forwarded-for": "10.9.8.7", "forwarded": "for=10.9.8.7", "x-real-ip": "10.9.8.7"}
    assert guarded.get("/api/status", "bob", headers=forged).status_code == 403


def test_queries_see_what_their_user_may_read(guarded: GuardedHttp) -> None:
    records = "SELECT topic, value FROM messages ORDER BY ALL"
    assert guarded.rows("alice", records) == [["orders", "tea"]]
    assert guarded.rows(ADMIN, records) == [["orders", "tea"], ["secret", "the launch code"]]
    assert guarded.rows("bob", records) == []
    assert guarded.rows("bob", "SELECT DISTINCT topic FROM partitions") == [["orders"]]
    assert guarded.rows("alice", "SELECT DISTINCT topic FROM partitions") == [["orders"]]
    assert guarded.rows("alice", "SELECT topic FROM topic_rates") == [["orders"]]
    assert guarded.rows("alice", "SELECT group_id, topic FROM consumer_offsets ORDER BY ALL") == [["shop", "orders"]]
    assert guarded.rows("alice", "SELECT group_id, topic, lag FROM consumer_lag") == [["shop", "orders", 1]]
    assert guarded.rows("alice", "SELECT group_id, topics, lag FROM group_activity") == [["shop", 1, 1]]
    assert guarded.rows("bob", "SELECT * FROM consumer_offsets") == []
    assert len(guarded.rows(ADMIN, "SELECT * FROM consumer_offsets")) == 4
    assert guarded.rows("alice", "SELECT count() FROM group_members") == [[0]]
    assert guarded.rows("alice", "SELECT group_id FROM consumer_groups") == [["shop"]]
    assert guarded.rows("bob", DIAGNOSES["lag"].sql(0)) == []
    assert [row[:2] for row in guarded.rows("alice", DIAGNOSES["lag"].sql(0))] == [["shop", "orders"]]


def test_a_topic_that_a_user_may_not_read_looks_like_one_that_does_not_exist(guarded: GuardedHttp) -> None:
    answers = [guarded.ask("alice", f"SELECT * FROM messages WHERE topic = '{name}'") for name in ("secret", "absent")]
    assert [each.status_code for each in answers] == [403, 403]
    first, second = (each.json()["error"] for each in answers)
    assert first.startswith("User:alice may not READ TOPIC secret")
    assert first.replace("secret", "absent") == second
    hidden = "SELECT count() FROM messages WHERE topic LIKE 'se%' OR topic IN (SELECT 'secret')"
    assert guarded.rows("alice", hidden) == [[0]]
    joined = "SELECT count() FROM messages AS a JOIN messages AS b ON 1 = 1 WHERE b.topic = 'secret'"
    assert guarded.rows("alice", joined) == [[0]]


def test_topics_in_tables_of_clickhouse_are_protected_too() -> None:
    settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "connection.failed.authentication.delay.ms": "0"}
    flags = {"grpc": "none", "streams": "chdb:?fsync=false"}
    with Broker(settings=settings, flags=flags, admin_password=PASSWORD) as broker:
        kafka = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": ADMIN,
            "sasl.password": PASSWORD,
        }
        admin, producer = AdminClient(kafka), Producer(kafka)
        for future in admin.create_topics([NewTopic(name, 1, 1) for name in ("orders", "secret")]).values():
            future.result(WAIT_S)
        for name in ("orders", "secret"):
            producer.produce(name, name.encode())
        assert producer.flush(WAIT_S) == 0
        set_password(admin, "alice", "a")
        binding = AclBinding(
            ResourceType.TOPIC,
            "orders",
            ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        admin.create_acls([binding])[binding].result(WAIT_S)

        def rows(login: tuple[str, str], sql: str) -> list[list[Any]]:
            answer = httpx.post(f"{broker.http}/api/v1/sql", json={"query": sql}, auth=login, timeout=WAIT_S)
            found: list[list[Any]] = answer.json()["rows"]
            return found

        for sql in (
            "SELECT topic, offset FROM messages ORDER BY ALL",
            "SELECT topic, value FROM messages ORDER BY ALL",
        ):
            every = rows((ADMIN, PASSWORD), sql)
            assert [each[0] for each in every] == ["orders", "secret"]
            assert rows(("alice", "a"), sql) == every[:1]


def test_a_user_without_rights_runs_no_queries(guarded: GuardedHttp) -> None:
    set_password(guarded.admin, "mallory", "mallory-password")
    answer = guarded.ask("mallory", "SELECT 1")
    assert (answer.status_code, list(answer.json())) == (403, ["error"])


def test_timelines_are_protected_like_topics(guarded: GuardedHttp) -> None:
    for name in ("orders", "hidden"):
        with Timeline(guarded.broker.grpc, name) as timeline:
            timeline.create()
            timeline.schedule([Message(b"tea", due=3600.0, id=f"in-{name}")])
    for user_name, seen in ((ADMIN, ["hidden", "orders"]), ("alice", ["orders"]), ("bob", ["orders"])):
        listed = guarded.get("/api/timelines", user_name).json()["timelines"]
        assert [each["name"] for each in listed] == seen
    assert guarded.rows("alice", "SELECT id FROM timers") == [["in-orders"]]
    assert guarded.rows("bob", "SELECT id FROM timers") == []
    assert guarded.rows(ADMIN, "SELECT id FROM timers ORDER BY id") == [["in-hidden"], ["in-orders"]]


def test_tables_are_returned_to_brokers_only(guarded: GuardedHttp) -> None:
    path = "/api/tables/partitions"

    def token(secret: str, number: int, name: str = ADMIN, **changed: Any) -> dict[str, str]:
        call = PeerCall(**{"purpose": f"GET {path}", "receiver": 0, "body": b"", **changed})
        claims = PeerClaims(1, user(name), "127.0.0.1")
        stamp = PeerStamp(b"s" * 16, number, int(time.time() * 1000))
        return {"tidemill-peer": write_peer_token(secret.encode(), call, claims, stamp)}

    assert guarded.get(path, ADMIN).status_code == 403
    assert guarded.get(path, headers=token("another-secret", 1)).status_code == 403
    assert (
        guarded.get(path, headers=token(CLUSTER_SECRET, 2, purpose="GET /api/tables/group_members")).status_code == 403
    )
    assert guarded.get(path, headers=token(CLUSTER_SECRET, 3, receiver=7)).status_code == 403
    good = token(CLUSTER_SECRET, 4)
    found = guarded.get(path, headers=good)
    assert found.status_code == 200
    assert b"secret" in found.content
    assert guarded.get(path, headers=good).status_code == 403
    theirs = guarded.get(path, headers=token(CLUSTER_SECRET, 5, name="alice"))
    assert b"orders" in theirs.content
    assert b"secret" not in theirs.content


def test_a_server_without_logins_serves_no_one_behind_an_authorizer() -> None:
    settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "tidemill.http.security": "PLAINTEXT"}
    with Broker(settings=settings, flags={"grpc": "none"}, admin_password=PASSWORD) as broker:
        answer = httpx.get(f"{broker.http}/metrics", auth=(ADMIN, PASSWORD), timeout=WAIT_S)
        assert answer.status_code == 403
        assert "tidemill.http.security=PLAINTEXT" in answer.text
        assert httpx.get(f"{broker.http}/login", timeout=WAIT_S).status_code == 404
        assert httpx.get(f"{broker.http}/api/topics", timeout=WAIT_S).json() == {"topics": []}
        asked = httpx.post(f"{broker.http}/api/v1/sql", json={"query": "SELECT 1"}, timeout=WAIT_S)
        assert asked.status_code == 403


def _cookie(what: str, guarded: GuardedHttp) -> str:
    return f"__Host-tidemill-{what}-{httpx.URL(guarded.broker.http).port}"


def _session(browser: FormBrowser, guarded: GuardedHttp) -> str:
    found = [each.value for each in browser.cookies.jar if each.name == _cookie("session", guarded)]
    return str(found[-1])
