"""What needs the attention of an operator first, decided from what the brokers report. Pure.

Each item says what is wrong, where to look, and what to do next. Critical: clients cannot write or read something.
Warning: a failure more, or more time, makes it critical. Note: worth knowing.
"""

from collections.abc import Iterable, Iterator, Sequence

from tidemill.servers.http.core.cluster_counts import ClusterCounts
from tidemill.wire.http.cluster import BrokerReport, ClusterBroker, HealthProblem
from tidemill.wire.http.groups import GroupRow
from tidemill.wire.http.overview import AttentionItem, Severity
from tidemill.wire.http.pipelines import PipelineRow

STUCK_S = 600.0
"""A group with members whose oldest unread record is older than this is stuck, or far too slow."""
DISK_SHARE_MAX = 0.9
"""A disk that is fuller than this is reported before it is full."""
NAMES_MAX = 3
GROUPS_MAX = 5
PIPELINES_MAX = 5
ERROR_SHOWN_CHARS = 200
_ORDER = ("critical", "warning", "note")
_LINKS = {"timelines": "/timelines", "clock": "/cluster", "tasks": "/logs"}
_CRITICAL = frozenset({"records", "membership"})


def attention(
    counts: ClusterCounts,
    brokers: Sequence[ClusterBroker],
    groups: Iterable[GroupRow],
    pipelines: Sequence[PipelineRow] = (),
) -> list[AttentionItem]:
    """Everything that needs attention, the most urgent first."""
    found = [*_partitions(counts), *_brokers(brokers), *_groups(groups), *_pipelines(pipelines)]
    return sorted(found, key=lambda item: _ORDER.index(item.severity))


def _partitions(counts: ClusterCounts) -> Iterator[AttentionItem]:
    offline = [str(place) for place, info in counts.short if info.leader < 0]
    if counts.without_leader:
        yield AttentionItem(
            severity="critical",
            title=f"{_partitions_text(counts.without_leader)} without a leader",
            detail=f"{_some(offline, counts.without_leader)} can be neither written nor read.",
            link="/cluster",
            next_step="Start a broker that has an in-sync replica.",
        )
    if counts.under_min_isr:
        yield AttentionItem(
            severity="critical",
            title=f"{_partitions_text(counts.under_min_isr)} under min.insync.replicas",
            detail="Producers with acks=all are refused.",
            link="/cluster",
            next_step="Start the missing brokers, or wait until their replicas have caught up.",
        )
    behind = [str(place) for place, info in counts.short if info.leader >= 0]
    if counts.under_replicated and behind:
        yield AttentionItem(
            severity="warning",
            title=f"{_partitions_text(counts.under_replicated)} under-replicated",
            detail=f"{_some(behind, counts.under_replicated)} have a replica that is not in sync.",
            link="/cluster",
            next_step="Start the missing broker; if it runs, compare its lag on the page of the cluster.",
        )


def _brokers(brokers: Sequence[ClusterBroker]) -> Iterator[AttentionItem]:
    for each in brokers:
        if each.report is None:
            yield _silent(each)
            continue
        yield from (_problem(each, problem) for problem in each.report.problems)
        yield from _disk(each, each.report)
        if each.report.recent_errors:
            yield _logged(each, each.report.recent_errors)
        for note in each.report.notes:
            yield _item("note", each, "has a note", note, "/cluster", "")
    anonymous = [each for each in brokers if each.report is not None and each.report.is_anonymous]
    if anonymous:
        yield AttentionItem(
            severity="note",
            title="Everyone may connect",
            detail="The setting allow.anonymous is on, and a server is reachable from other machines.",
            link="/security",
            next_step="Create users and turn it off: see the guide to security.",
        )
    versions = sorted({each.report.version for each in brokers if each.report is not None})
    if len(versions) > 1:
        yield AttentionItem(
            severity="note",
            title="Brokers run different versions",
            detail=", ".join(versions),
            link="/cluster",
            next_step="Finish the upgrade: restart the brokers of the older version one at a time.",
        )


def _silent(broker: ClusterBroker) -> AttentionItem:
    return _item(
        "critical" if broker.replicas else "warning",
        broker,
        "does not answer",
        "; ".join(broker.reasons) or "It is registered, but its HTTP server does not answer.",
        "/cluster",
        "Start it, or forget it if it will not return: its replicas must be moved first.",
    )


def _problem(broker: ClusterBroker, problem: HealthProblem) -> AttentionItem:
    severity: Severity = "critical" if problem.part in _CRITICAL else "warning"
    link = _LINKS.get(problem.part, "/cluster")
    return _item(severity, broker, f"has a problem with its {problem.part}", problem.text, link, problem.next_step)


def _logged(broker: ClusterBroker, errors: int) -> AttentionItem:
    what = "logged an error" if errors == 1 else f"logged {errors:,} different errors"
    link = f"/logs?level=error&broker={broker.broker}"
    return _item("note", broker, what, "In the last ten minutes.", link, "Read what failed and why.")


def _disk(broker: ClusterBroker, report: BrokerReport) -> Iterator[AttentionItem]:
    total, free = report.disk_total_bytes, report.disk_free_bytes
    if not total or free is None or any(each.part == "disk" for each in report.problems):
        return
    used = 1 - free / total
    if used > DISK_SHARE_MAX:
        yield _item(
            "warning",
            broker,
            f"has used {used:.0%} of its disk",
            "A full disk refuses records.",
            "/cluster",
            "Free space, lower the retention of large topics, or move replicas to other brokers.",
        )


def _groups(groups: Iterable[GroupRow]) -> Iterator[AttentionItem]:
    stuck = [each for each in groups if each.members and (each.lag or 0) > 0 and (each.lag_s or 0.0) > STUCK_S]
    for each in sorted(stuck, key=lambda row: -(row.lag_s or 0.0))[:GROUPS_MAX]:
        yield AttentionItem(
            severity="warning",
            title=f"Group {each.group} is far behind",
            detail=f"{each.lag:,} records wait, the oldest for {(each.lag_s or 0) / 60:.0f} minutes.",
            link="/groups?sort=lag&descending=true",
            next_step="Look at its members and partitions: one poison record, or too few members.",
        )


def _pipelines(pipelines: Sequence[PipelineRow]) -> Iterator[AttentionItem]:
    """Pipelines that have ended without being stopped, the newest first."""
    for each in sorted(pipelines, key=lambda row: -row.reported_ms)[:PIPELINES_MAX]:
        is_failed = each.state == "failed"
        yield AttentionItem(
            severity="warning",
            title=f"Pipeline {each.pipeline} has failed" if is_failed else f"Pipeline {each.pipeline} is silent",
            detail=each.error[:ERROR_SHOWN_CHARS] if each.error else "It has sent no report for more than a minute.",
            link=f"/pipelines?state={each.state}",
            next_step="Run it again to continue, or forget it on its page.",
        )


def _item(
    severity: Severity, broker: ClusterBroker, what: str, detail: str, link: str, next_step: str
) -> AttentionItem:
    title = f"Broker {broker.broker} {what}"
    return AttentionItem(severity=severity, title=title, detail=detail, link=link, next_step=next_step)


def _partitions_text(count: int) -> str:
    return "1 partition" if count == 1 else f"{count:,} partitions"


def _some(names: Sequence[str], total: int) -> str:
    shown = ", ".join(names[:NAMES_MAX])
    left = total - min(len(names), NAMES_MAX)
    return f"{shown} and {left:,} more" if left > 0 else shown
