"""The rights of the timelines' API are those of the gRPC server, and its changes are audited."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tests.support.password_users import set_password

from tidemill.testing.child import Child

WAIT_S = 30.0
ADMIN, PASSWORD = "admin", "admin-password"
HOUR_MS = 3_600_000
GRANTS = (
    ("reader", "orders", AclOperation.READ),
    ("describer", "orders", AclOperation.DESCRIBE),
    ("writer", "orders", AclOperation.WRITE),
    ("writer", "orders.dead", AclOperation.WRITE),
    ("deadwriter", "orders.dead", AclOperation.WRITE),
    ("deadwriter", "orders.dead", AclOperation.READ),
    ("owner", "orders", AclOperation.ALL),
    ("maker", "made", AclOperation.CREATE),
    ("maker", "made", AclOperation.DESCRIBE),
)
USERS = sorted({name for name, _, _ in GRANTS} | {"stranger"})


class Guarded:
    """A broker in a process, with users and ACLs, and its log."""

    def __init__(self, folder: Path) -> None:
        (folder / "password").write_text(PASSWORD)
        settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "connection.failed.authentication.delay.ms": "0"}
        flags = {"data-dir": str(folder / "data"), "grpc": "none", "http": "127.0.0.1:0", "timelines": "sqlite:"}
        self._log_path = folder / "log"
        self._log = self._log_path.open("wb")
        self._child = Child(flags, settings, {"TIDEMILL_ADMIN_PASSWORD_FILE": str(folder / "password")}, self._log)
        servers = self._child.start()
        self.http = f"http://{servers['http']}"
        self.admin = AdminClient(
            {
                "bootstrap.servers": str(servers["kafka"]),
                "security.protocol": "sasl_plaintext",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": ADMIN,
                "sasl.password": PASSWORD,
            }
        )

    def fill(self) -> None:
        for name in USERS:
            set_password(self.admin, name, PASSWORD)
        bindings = [
            AclBinding(
                ResourceType.TOPIC,
                timeline,
                ResourcePatternType.LITERAL,
                f"User:{name}",
                "*",
                operation,
                AclPermissionType.ALLOW,
            )
            for name, timeline, operation in GRANTS
        ]
        for future in self.admin.create_acls(bindings).values():
            future.result(WAIT_S)
        for timeline in ("orders.dead", "orders", "secret"):
            dead = {"max_attempts": "1", "dead_letter": "timeline:orders.dead"} if timeline == "orders" else {}
            assert self.ask(ADMIN, "POST", "", {"timeline": timeline, "settings": dead}).status_code == 200

    def ask(self, name: str, method: str, path: str, body: Any = None) -> httpx.Response:
        return httpx.request(
            method,
            f"{self.http}/api/v1/timelines{path}",
            json=body,
            auth=(name, PASSWORD),
            timeout=WAIT_S,
        )

    def audited(self, what: str) -> list[dict[str, Any]]:
        lines = self._log_path.read_text().splitlines()
        found = (json.loads(line) for line in lines if '"tidemill.audit"' in line)
        return [each for each in found if each.get("what") == what]

    def stop(self) -> None:
        self._child.stop()
        self._log.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    running = Guarded(tmp_path_factory.mktemp("rights"))
    try:
        running.fill()
        yield running
    finally:
        running.stop()


NO_MESSAGE = {"ids": ["none"]}
MOVE = {"ids": ["none"], "due_ms": HOUR_MS}
REQUESTS: dict[str, tuple[str, str, Any, set[str]]] = {
    "describe": ("GET", "/orders", None, {"reader", "describer", "writer", "owner"}),
    "future": ("GET", "/orders/future", None, {"reader", "describer", "writer", "owner"}),
    "messages": ("GET", "/orders/messages", None, {"reader", "owner"}),
    "message": ("GET", "/orders/messages/none", None, {"reader", "owner"}),
    "body": ("GET", "/orders/messages/none/body", None, {"reader", "owner"}),
    "cancel": ("POST", "/orders/cancellations", NO_MESSAGE, {"writer", "owner"}),
    "move": ("POST", "/orders/moves", MOVE, {"writer", "owner"}),
    "release": ("POST", "/orders/releases", NO_MESSAGE, set()),
    "retry": ("POST", "/orders.dead/retries", {}, {"writer", "deadwriter"}),
    "alter": ("PATCH", "/orders", {"settings": {"window_ms": "9999", "dead_letter": "timeline:orders.dead"}}, set()),
    "create": ("POST", "", {"timeline": "made"}, {"maker"}),
    "delete": ("DELETE", "/secret", None, set()),
}


@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_request_needs_the_right_of_its_operation(guarded: Guarded, request_name: str) -> None:
    method, path, body, allowed = REQUESTS[request_name]
    for name in USERS:
        answer = guarded.ask(name, method, path, body)
        expected = {200, 204, 404} if name in allowed else {403}
        assert answer.status_code in expected, (name, answer.text)
    assert guarded.ask(ADMIN, method, path, body).status_code in {200, 204, 404}


def test_the_list_has_only_what_the_client_may_describe(guarded: Guarded) -> None:
    def listed(name: str) -> list[str]:
        return [each["timeline"] for each in guarded.ask(name, "GET", "").json()["timelines"]]

    assert listed("describer") == ["orders"]
    assert listed("writer") == ["orders", "orders.dead"]
    assert listed("stranger") == []
    assert set(listed(ADMIN)) >= {"orders", "orders.dead"}


def test_timelines_that_a_client_may_not_describe_are_not_named(guarded: Guarded) -> None:
    view = guarded.ask("describer", "GET", "/orders").json()
    assert view["dead_letters"] == {"timeline": "orders.dead", "topic": None, "messages": None}
    dead = guarded.ask("deadwriter", "GET", "/orders.dead").json()
    assert dead["dead_letters_of"] == []


def test_changes_are_audited(guarded: Guarded) -> None:
    assert guarded.ask(ADMIN, "POST", "", {"timeline": "audited"}).status_code == 200
    assert guarded.ask(ADMIN, "PATCH", "/audited", {"settings": {"lease_ms": "5000"}}).status_code == 204
    due_ms = time.time_ns() // 1_000_000 + HOUR_MS
    assert guarded.ask(ADMIN, "POST", "/audited/moves", {"ids": ["none"], "due_ms": due_ms}).status_code == 200
    assert guarded.ask(ADMIN, "DELETE", "/audited").status_code == 204
    for what in ("timeline_created", "timeline_altered", "timeline_deleted"):
        assert [each["who"] for each in guarded.audited(what) if each["timeline"] == "audited"] == ["User:admin"], what
    assert guarded.audited("timeline_messages_moved") == []  # nothing was moved
