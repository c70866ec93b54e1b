"""What needs the attention of an operator first."""

from collections import Counter
from typing import Any

import pytest

from tidemill.cluster.core.image import NO_BROKER, PartitionInfo
from tidemill.model.topics import TopicPartition
from tidemill.servers.http.core.attention import DISK_SHARE_MAX, GROUPS_MAX, STUCK_S, attention
from tidemill.servers.http.core.cluster_counts import ClusterCounts
from tidemill.wire.http.cluster import BrokerReport, ClusterBroker, HealthProblem
from tidemill.wire.http.groups import GroupRow
from tidemill.wire.http.overview import AttentionItem, Severity

FINE = ClusterCounts(1, 4, Counter(), Counter(), Counter(), 0, 0, 0, (), frozenset())


def report(**changes: Any) -> BrokerReport:
    fine: dict[str, Any] = {
        "version": "1.0",
        "uptime_s": 1.0,
        "state": "serving",
        "problems": [],
        "notes": [],
        "clock": None,
        "servers": [],
        "is_anonymous": False,
        "storage": "segments",
        "disk_total_bytes": 100,
        "disk_free_bytes": 50,
        "log_bytes": 0,
        "connections": 0,
        "lags": [],
        "timelines": 0,
    }
    return BrokerReport(**fine | changes)


def broker(number: int = 1, **changes: Any) -> ClusterBroker:
    fine: dict[str, Any] = {
        "broker": number,
        "address": "host:9092",
        "rack": None,
        "roles": None,
        "state": "serving",
        "controller": False,
        "leads": 0,
        "replicas": 0,
        "in_sync": 0,
        "lag": None,
        "lag_ms": None,
        "reasons": [],
        "report": report(),
    }
    return ClusterBroker(**fine | changes)


def group(name: str, **changes: Any) -> GroupRow:
    behind: dict[str, Any] = {
        "type": "classic",
        "state": "Stable",
        "protocol": "consumer",
        "assignor": None,
        "members": 1,
        "topics": None,
        "topic_count": None,
        "lag": 1_234,
        "lag_s": STUCK_S + 60,
        "coordinator": 1,
    }
    return GroupRow(group=name, **behind | changes)


def found(
    *, counts: ClusterCounts = FINE, brokers: tuple[ClusterBroker, ...] = (), groups: tuple[GroupRow, ...] = ()
) -> list[AttentionItem]:
    return attention(counts, brokers, groups)


def short(count: int, leader: int) -> tuple[tuple[TopicPartition, PartitionInfo], ...]:
    return tuple((TopicPartition("t", index), PartitionInfo(index, leader, (0, 1), (0,), 0)) for index in range(count))


def test_a_cluster_without_problems_needs_no_attention() -> None:
    assert found(brokers=(broker(1), broker(2)), groups=(group("g", lag_s=STUCK_S),)) == []


def test_partitions_are_counted_and_the_first_are_named() -> None:
    [item] = found(counts=FINE._replace(without_leader=1, short=short(1, NO_BROKER)))
    assert (item.severity, item.title) == ("critical", "1 partition without a leader")
    assert item.detail == "t-0 can be neither written nor read."
    [item] = found(counts=FINE._replace(under_replicated=1_005, short=short(4, 0)))
    assert (item.severity, item.title) == ("warning", "1,005 partitions under-replicated")
    assert item.detail == "t-0, t-1, t-2 and 1,002 more have a replica that is not in sync."
    [item] = found(counts=FINE._replace(under_min_isr=3))
    assert (item.severity, item.title) == ("critical", "3 partitions under min.insync.replicas")
    [item] = found(counts=FINE._replace(without_leader=3, under_replicated=3, short=short(3, NO_BROKER)))
    assert item.detail == "t-0, t-1, t-2 can be neither written nor read.", "those that lack a leader are named once"


@pytest.mark.parametrize(("replicas", "severity"), [(0, "warning"), (2, "critical")])
def test_a_broker_that_does_not_answer_is_critical_if_it_has_replicas(replicas: int, severity: str) -> None:
    [item] = found(brokers=(broker(7, report=None, replicas=replicas, reasons=["timed out", "refused"]),))
    assert (item.severity, item.title, item.detail) == (severity, "Broker 7 does not answer", "timed out; refused")
    [item] = found(brokers=(broker(7, report=None),))
    assert item.detail == "It is registered, but its HTTP server does not answer."


@pytest.mark.parametrize(
    ("part", "severity", "link"),
    [
        ("records", "critical", "/cluster"),
        ("membership", "critical", "/cluster"),
        ("timelines", "warning", "/timelines"),
    ],
)
def test_a_problem_of_a_broker_links_to_its_page(part: str, severity: Severity, link: str) -> None:
    [item] = found(brokers=(broker(report=report(problems=[HealthProblem(part=part, text="bad", next_step="do")])),))
    assert item == AttentionItem(
        severity=severity, title=f"Broker 1 has a problem with its {part}", detail="bad", link=link, next_step="do"
    )


def test_a_nearly_full_disk_is_reported_unless_the_broker_does_so() -> None:
    full = {"disk_total_bytes": 1_000, "disk_free_bytes": 99}
    [item] = found(brokers=(broker(report=report(**full)),))
    assert (item.severity, item.title) == ("warning", "Broker 1 has used 90% of its disk")
    assert found(brokers=(broker(report=report(disk_total_bytes=1_000, disk_free_bytes=101)),)) == []
    assert DISK_SHARE_MAX == 0.9
    for unknown in ({"disk_total_bytes": None}, {"disk_total_bytes": 0}, {"disk_free_bytes": None}):
        assert found(brokers=(broker(report=report(**full | unknown)),)) == []
    problem = HealthProblem(part="disk", text="full")
    [item] = found(brokers=(broker(report=report(**full, problems=[problem])),))
    assert item.detail == "full"


def test_notes_open_servers_and_different_versions_are_worth_knowing() -> None:
    one, two = report(notes=["a note"], is_anonymous=True), report(version="1.1", is_anonymous=True)
    items = found(brokers=(broker(1, report=one), broker(2, report=two), broker(3, report=None)))
    assert [(item.severity, item.title) for item in items] == [
        ("warning", "Broker 3 does not answer"),
        ("note", "Broker 1 has a note"),
        ("note", "Everyone may connect"),
        ("note", "Brokers run different versions"),
    ]
    assert (items[1].detail, items[3].detail) == ("a note", "1.0, 1.1")


def test_groups_that_are_far_behind_are_named_the_worst_first() -> None:
    behind = [group(f"g{number}", lag_s=STUCK_S + number) for number in range(1, GROUPS_MAX + 3)]
    quiet = (group("empty", members=0), group("unknown", lag=None), group("read", lag=0), group("new", lag_s=None))
    items = found(groups=(*behind, *quiet))
    assert [item.title for item in items] == [
        f"Group g{number} is far behind" for number in range(GROUPS_MAX + 2, 2, -1)
    ]
    [item] = found(groups=(group("g", lag_s=900.0),))
    assert (item.severity, item.detail) == ("warning", "1,234 records wait, the oldest for 15 minutes.")


def test_the_most_urgent_comes_first() -> None:
    items = found(
        counts=FINE._replace(under_min_isr=1), brokers=(broker(report=report(notes=["n"])),), groups=(group("g"),)
    )
    assert [item.severity for item in items] == ["critical", "warning", "note"]
