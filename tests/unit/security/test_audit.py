"""The audit log: what it says, and how it limits events that a client can repeat."""

import logging

import pytest
import structlog
from structlog.testing import capture_logs

from tidemill.security.audit import Audit
from tidemill.security.core.event_limiter import EVENTS_PER_S, REMEMBERED_EVENTS_MAX, REPEAT_S
from tidemill.security.core.principal import user
from tidemill.security.core.resources import Operation, ResourceType

ALICE = user("alice")


@pytest.fixture(autouse=True)
def _logs_at_info() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def deny(audit: Audit, name: str) -> None:
    audit.authorization_denied(ALICE, "10.0.0.1", Operation.READ, ResourceType.TOPIC, name)


def test_events_name_the_user_the_host_and_the_change() -> None:
    audit = Audit(Clock())
    with capture_logs() as lines:
        audit.login_succeeded(ALICE, "10.0.0.1", "PLAIN", "OUTSIDE")
        audit.login_failed("mallory", "10.0.0.2", "PLAIN", "OUTSIDE", "wrong password")
        deny(audit, "orders")
        audit.changed(ALICE, "10.0.0.1", "topics_deleted", topics=["orders"])
    assert [(line["event"], line["who"], line["host"]) for line in lines] == [
        ("login_succeeded", "User:alice", "10.0.0.1"),
        ("login_failed", "mallory", "10.0.0.2"),
        ("authorization_denied", "User:alice", "10.0.0.1"),
        ("changed", "User:alice", "10.0.0.1"),
    ]
    assert [lines[2][key] for key in ("operation", "resource_type", "name")] == ["READ", "TOPIC", "orders"]
    assert lines[3]["what"] == "topics_deleted"
    assert lines[3]["topics"] == ["orders"]


def test_the_same_event_is_logged_once_in_a_while_with_its_count() -> None:
    clock = Clock()
    audit = Audit(clock)
    with capture_logs() as lines:
        for _ in range(5):
            deny(audit, "orders")
        clock.now += REPEAT_S
        deny(audit, "orders")
    assert [line.get("repeated") for line in lines] == [None, 4]


def test_different_events_are_limited_in_all() -> None:
    clock = Clock()
    audit = Audit(clock)
    with capture_logs() as lines:
        for number in range(EVENTS_PER_S + 7):
            deny(audit, f"t{number}")
        clock.now += 1
        deny(audit, "last")
    assert len(lines) == EVENTS_PER_S + 1
    assert lines[-1]["left_out"] == 7


def test_memory_and_lines_are_bounded() -> None:
    clock = Clock()
    audit = Audit(clock)
    with capture_logs() as lines:
        for number in range(REMEMBERED_EVENTS_MAX + 100):
            clock.now += 0.03
            deny(audit, f"t{number}")
        deny(audit, "x" * 10_000)
    assert len(audit._limiter._recent) <= REMEMBERED_EVENTS_MAX
    assert len(lines[-1]["name"]) == 200


def test_changes_are_always_logged() -> None:
    audit = Audit(Clock())
    with capture_logs() as lines:
        for _ in range(EVENTS_PER_S + 5):
            audit.changed(ALICE, "10.0.0.1", "acls_created", count=1)
    assert len(lines) == EVENTS_PER_S + 5
