"""Users, ACLs, quotas and effective rights in the JSON API, at a broker that authenticates."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from tests.support.certificates import Authority
from tests.support.guarded_console import ADMIN, PASSWORD, WAIT_S, GuardedConsole, guarded_console
from tests.support.waiting import eventually

from tidemill.testing import Broker

STRANGER, AUDITOR = "stranger", "auditor"


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedConsole]:
    with guarded_console(tmp_path_factory.mktemp("security")) as running:
        running.add_users([STRANGER, AUDITOR])
        running.grant(AUDITOR, operations=["describe", "describe-configs"], cluster=True)
        running.admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(WAIT_S)
        yield running


def users(console: GuardedConsole, **query: Any) -> dict[str, Any]:
    answer = console.ask(ADMIN, "GET", "/api/v1/users", params=query)
    assert answer.status_code == 200, answer.text
    return {each["user"]: each for each in answer.json()["users"]}


def acls(console: GuardedConsole, **query: Any) -> list[tuple[str, ...]]:
    answer = console.ask(ADMIN, "GET", "/api/v1/acls", params=query)
    assert answer.status_code == 200, answer.text
    return [tuple(each.values()) for each in answer.json()["acls"]]


def can_log_in(console: GuardedConsole, name: str, password: str) -> bool:
    answer = httpx.get(f"{console.http}/api/v1/me", auth=(name, password), timeout=WAIT_S)
    assert answer.status_code in {200, 401}
    return answer.status_code == 200


def test_a_user_is_added_changed_and_removed(console: GuardedConsole) -> None:
    made = console.good(ADMIN, "POST", "/api/v1/users", {"user": "paul", "password": "first password"})
    assert made == {
        "user": "paul",
        "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"],
        "iterations": 8192,
        "password": None,
    }
    assert can_log_in(console, "paul", "first password")
    assert users(console, search="paul")["paul"] == {
        "user": "paul",
        "mechanisms": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192},
        "super": False,
        "acls": 0,
    }
    again = console.ask(ADMIN, "POST", "/api/v1/users", {"user": "paul", "password": "other"})
    assert (again.status_code, again.json()) == (409, {"error": "user paul exists; change the password instead"})
    assert can_log_in(console, "paul", "first password")
    change = {"generate": True, "mechanisms": ["SCRAM-SHA-512"], "iterations": 4096}
    changed = console.good(ADMIN, "PUT", "/api/v1/users/paul/password", change)
    assert len(changed["password"]) >= 32
    assert not can_log_in(console, "paul", "first password")
    assert can_log_in(console, "paul", changed["password"])
    assert users(console)["paul"]["mechanisms"] == {"SCRAM-SHA-512": 4096}
    console.grant("paul", producer=True, topics=["orders"])
    assert users(console)["paul"]["acls"] == 3
    console.good(ADMIN, "DELETE", "/api/v1/users/paul?revoke_acls=true")
    assert "paul" not in users(console)
    assert acls(console, search="paul") == []
    assert not can_log_in(console, "paul", changed["password"])
    assert "first password" not in console.log_text()
    assert changed["password"] not in console.log_text()


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"user": "x"}, 400, "either a password or generate"),
        ({"user": "x", "password": "y", "generate": True}, 400, "either a password or generate"),
        ({"user": "x", "password": "a\0b"}, 400, "NUL"),
        ({"user": "x", "password": "ü" * 600}, 400, "too long"),
        ({"user": "x", "password": ""}, 400, "length"),
        ({"user": "User:x", "password": "y"}, 400, "without User:"),
        ({"user": "*", "password": "y"}, 400, "no user can have the name *"),
        ({"user": "a\nb", "password": "y"}, 400, "printable"),
        ({"user": "x" * 250, "password": "y"}, 400, "length"),
        ({"user": "x", "password": "y", "mechanisms": ["PLAIN"]}, 400, "PLAIN"),
        ({"user": "x", "password": "y", "iterations": 1}, 400, "4096"),
        ({"user": "x", "password": "y", "super": True}, 400, "unknown field"),
    ],
)
def test_users_that_cannot_be_added(console: GuardedConsole, body: Any, status: int, reason: str) -> None:
    answer = console.ask(ADMIN, "POST", "/api/v1/users", body)
    assert answer.status_code == status
    assert reason in answer.json()["error"]
    assert "x" not in users(console)


def test_users_that_do_not_exist(console: GuardedConsole) -> None:
    for method, path, body in (
        ("PUT", "/api/v1/users/none/password", {"generate": True}),
        ("DELETE", "/api/v1/users/none", None),
    ):
        assert console.ask(ADMIN, method, path, body).status_code == 404


def test_the_last_super_user_and_the_own_user_are_kept(console: GuardedConsole) -> None:
    refused = console.ask(ADMIN, "DELETE", f"/api/v1/users/{ADMIN}")
    assert refused.status_code == 409
    assert "the last super user" in refused.json()["error"]
    console.add_users(["deputy"])
    console.grant("deputy", operations=["all"], cluster=True)
    own = console.ask("deputy", "DELETE", "/api/v1/users/deputy")
    assert own.status_code == 409
    assert "your own user" in own.json()["error"]
    assert console.ask("deputy", "DELETE", "/api/v1/users/deputy?last_super=true").status_code == 204
    assert "deputy" not in users(console)
    console.good(ADMIN, "POST", "/api/v1/acls/revocations", {"principals": ["deputy"], "all": True})


def test_acls_are_granted_and_revoked(console: GuardedConsole) -> None:
    console.add_users(["grace"])
    producer = Producer({**console.kafka, "sasl.username": "grace", "message.timeout.ms": 5_000})
    body = {"principals": ["grace"], "producer": True, "topics": ["orders"]}
    preview = console.good(ADMIN, "POST", "/api/v1/acls", {**body, "dry_run": True})
    assert (len(preview["acls"]), preview["dry_run"], preview["warnings"], preview["loses"]) == (3, True, [], [])
    assert acls(console, search="grace") == []
    console.good(ADMIN, "POST", "/api/v1/acls", body)
    assert {each[2] for each in acls(console, search="grace")} == {"write", "describe", "create"}
    errors: list[Any] = []
    producer.produce("orders", b"tea", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    assert errors == [None]
    [exact] = [each for each in console.good(ADMIN, "GET", "/api/v1/acls")["acls"] if each["operation"] == "write"]
    console.good(ADMIN, "POST", "/api/v1/acls/revocations", {"acls": [exact]})
    assert {each[2] for each in acls(console, search="grace")} == {"describe", "create"}
    producer.produce("orders", b"tea", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    assert errors[1] is not None
    gone = console.ask(ADMIN, "POST", "/api/v1/acls/revocations", {"acls": [exact]})
    assert gone.status_code == 404
    for part, word in (("operation", "topic"), ("resource", "read"), ("operation", "any"), ("host", "here")):
        wrong = console.ask(ADMIN, "POST", "/api/v1/acls/revocations", {"acls": [{**exact, part: word}]})
        assert wrong.status_code == 400, wrong.text
    rest = console.good(ADMIN, "POST", "/api/v1/acls/revocations", {"principals": ["grace"], "all": True})
    assert len(rest["acls"]) == 2
    assert acls(console, search="grace") == []


def test_acls_are_selected_as_the_command_does(console: GuardedConsole) -> None:
    console.grant("seth", operations=["read"], topics=["sel."], prefix=True, hosts=["10.0.0.7", "2001:DB8::7"])
    console.grant("*", operations=["describe"], topics=["sel.one"])
    console.grant("seth", operations=["write"], topics=["sel.one"], deny=True)
    both = [each[1:] for each in acls(console, resource="topic", name="sel.one", principal="seth")]
    assert sorted(both) == [
        ("allow", "describe", "topic", "sel.one", "literal", "*"),
        ("allow", "read", "topic", "sel.", "prefixed", "10.0.0.7"),
        ("allow", "read", "topic", "sel.", "prefixed", "2001:db8::7"),
        ("deny", "write", "topic", "sel.one", "literal", "*"),
    ]
    assert len(acls(console, permission="deny")) == 1
    page = console.ask(ADMIN, "GET", "/api/v1/acls", params={"search": "sel.", "sort": "resource", "rows": 2}).json()
    assert (page["total"], page["groups"]) == (4, {"topic sel.one": 2})
    preview = {"principals": ["seth"], "topics": ["sel."], "prefix": True, "dry_run": True}
    assert len(console.good(ADMIN, "POST", "/api/v1/acls/revocations", preview)["acls"]) == 2
    for name in ("seth", "*"):
        console.good(ADMIN, "POST", "/api/v1/acls/revocations", {"principals": [name], "all": True})
    assert acls(console, search="sel.") == []


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("", {"principals": ["x"], "operations": ["read"]}, "name what the ACL is about"),
        ("", {"principals": ["x"], "topics": ["t"]}, "give operations"),
        ("", {"principals": ["x"], "topics": ["t"], "operations": ["fly"]}, "'fly' is not an operation"),
        ("", {"principals": ["x"], "groups": ["g"], "operations": ["write"]}, "GROUP has no operation WRITE"),
        ("", {"principals": ["x"], "groups": ["g"], "consumer": True}, "a consumer needs a topic"),
        ("", {"principals": ["x"], "topics": ["*"], "operations": ["read"], "prefix": True}, "leave out prefix"),
        ("", {"principals": ["x"], "topics": ["t"], "producer": True, "deny": True}, "a DENY needs operations"),
        ("", {"principals": ["x"], "topics": ["t"], "operations": ["read"], "hosts": ["a.b"]}, "not an IP address"),
        ("", {"topics": ["t"], "operations": ["read"]}, "name the users"),
        ("", {"principals": ["User:"], "topics": ["t"], "operations": ["read"]}, "name of a user is empty"),
        ("", {"principals": ["x"], "topics": [str(n) for n in range(100)], "operations": ["all"],
              "hosts": [f"10.0.0.{n}" for n in range(99)]}, "one change may have 1000"),
        ("/revocations", {"principals": ["x"]}, "name what to revoke"),
        ("/revocations", {"all": True}, "every ACL of the named principals"),
        ("/revocations", {"principals": ["x"], "all": True, "topics": ["t"]}, "leave out the rest"),
    ],
)  # fmt: skip
def test_descriptions_that_mean_no_acl(console: GuardedConsole, path: str, body: Any, reason: str) -> None:
    answer = console.ask(ADMIN, "POST", f"/api/v1/acls{path}", body)
    assert answer.status_code == 400
    assert reason in answer.json()["error"]


def test_a_client_does_not_take_its_own_rights_away_by_accident(console: GuardedConsole) -> None:
    console.add_users(["olga"])
    console.grant("olga", operations=["alter", "describe"], cluster=True)
    revocation = {"principals": ["olga"], "all": True}
    preview = console.good("olga", "POST", "/api/v1/acls/revocations", {**revocation, "dry_run": True})
    assert preview["loses"] == ["alter", "describe"]
    refused = console.ask("olga", "POST", "/api/v1/acls/revocations", revocation)
    assert refused.status_code == 409
    assert "you would lose alter, describe" in refused.json()["error"]
    deny = {"principals": ["*"], "operations": ["alter"], "cluster": True, "deny": True}
    assert console.ask("olga", "POST", "/api/v1/acls", deny).status_code == 409
    console.good("olga", "POST", "/api/v1/acls/revocations", {**revocation, "accept_loss": True})
    assert console.ask("olga", "GET", "/api/v1/acls").status_code == 403


def test_quotas_are_set_listed_applied_and_removed(console: GuardedConsole) -> None:
    entity = {"user": "alice", "client-id": None}
    change = {"entity": entity, "quotas": {"producer_byte_rate": 1024, "request_percentage": 12.5}}
    preview = console.good(ADMIN, "PUT", "/api/v1/quotas", {**change, "dry_run": True})
    assert preview["quotas"] == change["quotas"]
    assert console.good(ADMIN, "GET", "/api/v1/quotas?search=alice")["total"] == 0
    console.good(ADMIN, "PUT", "/api/v1/quotas", change)
    console.good(ADMIN, "PUT", "/api/v1/quotas", {"entity": {"user": None}, "quotas": {"consumer_byte_rate": 2048}})
    listed = console.good(ADMIN, "GET", "/api/v1/quotas?search=alice")
    assert listed == {"entities": [change], "total": 1}
    applied = console.good(ADMIN, "GET", "/api/v1/quotas/applied?user=alice&client_id=mailer")["quotas"]
    assert {each["quota"]: each["entity"] for each in applied} == {
        "producer_byte_rate": entity,
        "request_percentage": entity,
        "consumer_byte_rate": {"user": None},
    }
    console.good(ADMIN, "PUT", "/api/v1/quotas", {"entity": entity, "quotas": {"request_percentage": None}})
    removal = {"entity": entity, "quotas": ["request_percentage"]}
    assert console.ask(ADMIN, "POST", "/api/v1/quotas/removals", removal).status_code == 404
    gone = console.good(ADMIN, "POST", "/api/v1/quotas/removals", {"entity": entity})
    assert gone["quotas"] == {"producer_byte_rate": 1024}
    assert console.good(ADMIN, "GET", "/api/v1/quotas?search=alice")["total"] == 0


@pytest.mark.parametrize(
    ("entity", "quotas"),
    [
        ({"ip": "nowhere"}, {"connection_creation_rate": 1}),
        ({"ip": "10.0.0.1", "user": "x"}, {"connection_creation_rate": 1}),
        ({"ip": "10.0.0.1"}, {"producer_byte_rate": 1}),
        ({"user": "x"}, {"producer_byte_rate": -1}),
        ({"user": "x"}, {"producer_byte_rate": 0.5}),
        ({"user": "x"}, {"nothing": 1}),
        ({"user": ""}, {"producer_byte_rate": 1}),
        ({"planet": "x"}, {"producer_byte_rate": 1}),
        ({}, {"producer_byte_rate": 1}),
        ({"user": "x"}, {}),
    ],
)
def test_quotas_that_cannot_be_set(console: GuardedConsole, entity: Any, quotas: Any) -> None:
    answer = console.ask(ADMIN, "PUT", "/api/v1/quotas", {"entity": entity, "quotas": quotas})
    assert answer.status_code == 400, answer.text


def test_rights_are_explained(console: GuardedConsole) -> None:
    console.grant("rita", operations=["read"], topics=["ex."], prefix=True)
    console.grant("rita", operations=["write"], topics=["ex.a"], hosts=["10.0.0.7"])
    console.grant("*", operations=["read"], topics=["ex.b"], deny=True)

    def rights(**query: Any) -> dict[str, bool]:
        found = console.ask(ADMIN, "GET", "/api/v1/security/rights", params={"principal": "rita", **query}).json()
        return {each["operation"]: each["allowed"] for each in found["operations"] if each["because"]}

    assert rights(name="ex.a") == {"read": True, "describe": True}
    assert rights(name="ex.a", host="10.0.0.7") == {"read": True, "write": True, "describe": True}
    assert rights(name="ex.b") == {"read": False, "describe": True}
    assert rights(name="other") == {}
    found = console.good(ADMIN, "GET", "/api/v1/security/rights?principal=rita&name=ex.a")
    assert [each["host"] for each in found["elsewhere"]] == ["10.0.0.7"]
    assert (found["is_known"], found["is_super"]) == (False, False)
    assert console.good(ADMIN, "GET", f"/api/v1/security/rights?principal={ADMIN}&name=x")["is_super"]
    for wrong in ("principal=User:&name=x", "name=", "name=x&host=here"):
        assert console.ask(ADMIN, "GET", f"/api/v1/security/rights?{wrong}").status_code == 400


def test_a_client_may_ask_about_itself_only(console: GuardedConsole) -> None:
    me = console.good(STRANGER, "GET", "/api/v1/me")
    assert (me["principal"], me["cluster_operations"], me["is_super"]) == (f"User:{STRANGER}", [], False)
    own = console.good(STRANGER, "GET", "/api/v1/security/rights?name=orders")
    assert not any(each["allowed"] or each["because"] for each in own["operations"])
    assert own["is_known"] is None
    assert console.ask(STRANGER, "GET", f"/api/v1/security/rights?principal={ADMIN}&name=orders").status_code == 403
    assert console.good(AUDITOR, "GET", f"/api/v1/security/rights?principal={ADMIN}&name=orders")["is_super"]


def test_the_state_of_security_is_described(console: GuardedConsole) -> None:
    found = console.good(AUDITOR, "GET", "/api/v1/security")
    assert (found["checks_acls"], found["requires_login"], found["super_users"]) == (True, True, 1)
    [broker] = found["brokers"]
    assert {(each["server"], each["authenticates"]) for each in broker["servers"]} == {("kafka", True), ("http", True)}
    assert found["acls"] > 0


@pytest.mark.parametrize("page", ["", "/users", "/acls", "/quotas", "/rights", "/rights?name=orders"])
def test_pages_offer_what_the_client_may_do(console: GuardedConsole, page: str) -> None:
    path = f"/security{page}"
    full, seen = console.ask(ADMIN, "GET", path), console.ask(AUDITOR, "GET", path)
    assert (full.status_code, seen.status_code) == (200, 200)
    for button in ("Add a user", "Grant rights", "Set a quota", "data-revoke", "Remove"):
        assert button not in seen.text.replace("data-revoke-all", ""), page
    refused = console.ask(STRANGER, "GET", path)
    if page in {"/users", "/acls", "/quotas"}:
        assert refused.status_code == 403
        assert "may not DESCRIBE" in refused.text
        assert '<nav class="pages"' in refused.text
        assert refused.headers["content-type"].startswith("text/html")
    else:
        assert refused.status_code == 200
        assert f"User:{STRANGER}" in refused.text or "Name a resource" in refused.text


def test_changes_are_audited_with_the_name_of_the_client(console: GuardedConsole) -> None:
    console.add_users(["chief"])
    console.grant("chief", operations=["all"], cluster=True)
    console.good("chief", "POST", "/api/v1/users", {"user": "audited", "password": PASSWORD})
    console.good("chief", "POST", "/api/v1/acls", {"principals": ["audited"], "producer": True, "topics": ["orders"]})
    console.good("chief", "POST", "/api/v1/acls/revocations", {"principals": ["audited"], "all": True})
    console.good("chief", "PUT", "/api/v1/quotas", {"entity": {"user": "audited"}, "quotas": {"producer_byte_rate": 9}})
    console.good("chief", "DELETE", "/api/v1/users/audited")
    wanted = {"credential_set", "acl_created", "acl_deleted", "quota_altered", "credential_removed"}
    eventually(lambda: {each["what"] for each in console.audit() if each["who"] == "User:chief"} >= wanted, "audited")
    assert {each["host"] for each in console.audit()} == {"127.0.0.1"}


def test_a_broker_without_logins_teaches_how_to_turn_them_on() -> None:
    with Broker(flags={"grpc": "none"}) as broker, httpx.Client(base_url=broker.http, timeout=WAIT_S) as client:
        for path in ("/security", "/security/acls"):
            page = client.get(path)
            assert page.status_code == 200
            assert "tidemill user add admin --super --data-dir data" in page.text
        me = client.get("/api/v1/me").json()
        assert (me["is_anonymous"], me["checks_acls"], me["is_super"]) == (True, False, False)
        refused = client.get("/api/v1/acls")
        assert refused.status_code == 403
        assert "checks no ACLs" in refused.json()["error"]
        added = client.post("/api/v1/users", json={"user": "early", "generate": True})
        assert (added.status_code, client.get("/api/v1/users").json()["total"]) == (200, 1)


def test_a_broker_with_tls_and_no_truststore_changes_its_users(tmp_path: Any) -> None:
    """As in the guide: the console uses the Kafka server of its own broker, whose CA is in no truststore."""
    authority = Authority(tmp_path)
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.keystore.location": authority.issue("/CN=broker", "broker"),
    }
    with (
        Broker(settings=settings, flags={"grpc": "none"}, admin_password=PASSWORD) as broker,
        httpx.Client(base_url=broker.http, auth=(ADMIN, PASSWORD), verify=False, timeout=WAIT_S) as client,  # noqa: S501
    ):
        added = client.post("/api/v1/users", json={"user": "shop", "password": "shop-password"})
        assert added.status_code == 200, added.text

        def expiries() -> set[Any]:
            [found] = client.get("/api/v1/security").json()["brokers"]
            return {each["certificate_expires_ms"] for each in found["servers"]}

        eventually(lambda: None not in expiries(), "the expiry of the certificate is known")
