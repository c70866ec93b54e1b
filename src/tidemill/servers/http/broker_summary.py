"""The state of a broker as plain data, for JSON and for pages."""

from collections.abc import Sequence
from typing import Any

from tidemill.broker.broker import BrokerNode
from tidemill.broker.health import DISK_FULL, cluster_health, notes_of
from tidemill.clocks.watch import TRUSTED
from tidemill.cluster.core.image import Topic
from tidemill.cluster.core.registration import DEGRADED, HEALTHY, INACTIVE
from tidemill.model.listeners import GRPC, HTTP, authenticates, server_security
from tidemill.security.client_rights import ClientRights
from tidemill.security.core.resources import Operation, ResourceType
from tidemill.timelines.core.timeline import resource_of

NO_MEMBER = (
    "this broker is not a member of its cluster: it leads no partitions until it reaches the coordination service again"
)
NAMES_MAX = 3
"""The most partitions that are named for one reason; the others are counted."""


def status_of(broker: BrokerNode) -> dict[str, Any]:
    """Return the broker's numbers."""
    telemetry = broker.metrics
    topics = broker.view.topics()
    return {
        "node_id": broker.node_id,
        "cluster_id": broker.cluster_id,
        "brokers": [address._asdict() for address in broker.view.brokers()],
        "topics": sum(1 for topic in topics if not topic.internal),
        "partitions": len(broker.partitions),
        "failed_partitions": len(broker.partitions.broken()),
        "log_bytes": sum(partition.size_bytes for partition in broker.partitions),
        "connections": dict(telemetry.connections),
        "requests": sum(traffic.duration.count for traffic in telemetry.apis.values()),
        "records_in": sum(traffic.records_in for traffic in telemetry.topics.values()),
        "bytes_in": sum(traffic.bytes_in for traffic in telemetry.topics.values()),
        "bytes_out": sum(traffic.bytes_out for traffic in telemetry.topics.values()),
    }


def health_of(broker: BrokerNode) -> dict[str, Any]:
    """Return the health: healthy, degraded (a part does not serve) or inactive, the reasons, and all brokers."""
    full = broker.partitions.store.full or broker.partitions.lacks_room
    reasons = [*broken_partitions(broker), *([DISK_FULL] if full else []), *broker.partitions.store.missing]
    timelines = broker.timelines.health() if broker.timelines is not None else None
    failing = broker.supervisor.reasons()
    clock = None if broker.clock is None else broker.clock.status()
    trusted = clock is None or clock["state"] == TRUSTED
    peers = broker.loads.verdict
    sound = timelines is None or timelines.state == HEALTHY
    healthy = trusted and sound and not (reasons or failing or peers)
    member = broker.membership.alive
    return {
        "state": INACTIVE if not member else HEALTHY if healthy else DEGRADED,
        "member": member,
        "brokers": [seen._asdict() for seen in cluster_health(broker.view.image)],
        "clock": clock,
        "streams": {"state": "degraded" if reasons else "healthy", "reasons": reasons},
        "anonymous_clients": broker.settings.security.allow_anonymous,
        "security": security_of(broker),
        "peers": {"state": "degraded" if peers else "healthy", "reasons": [peers.text()] if peers else []},
        "tasks": {"state": "degraded" if failing else "healthy", "reasons": failing},
        "notes": notes_of(broker.partitions, broker.view.image, broker.move_notes()),
        "timelines": None
        if timelines is None
        else {
            "state": timelines.state,
            "reasons": list(timelines.reasons),
            "clock_drift_ms": timelines.clock_drift_ms,
            "store_drift_ms": timelines.store_drift_ms,
            "clients_drift_ms": timelines.clients_drift_ms,
        },
    }


def least_health_of(health: dict[str, Any]) -> dict[str, Any]:
    """Return the part of the health that every client may see."""
    return {name: health[name] for name in ("state", "member")}


def security_of(broker: BrokerNode) -> list[dict[str, Any]]:
    """Return the security protocol of each server, and whether it authenticates its clients."""
    settings, listeners = broker.settings, broker.identity.listeners
    servers: list[dict[str, Any]] = [
        {
            "server": "kafka",
            "listener": each.name,
            "protocol": each.protocol,
            "authenticates": authenticates(each.protocol, settings.of_listener(each.name)),
        }
        for each in listeners
    ]
    for name in (GRPC, HTTP):
        if getattr(broker.membership.registration, name) is not None:
            found = server_security(name, settings, listeners)
            servers.append({"server": name, "protocol": found.protocol, "authenticates": found.authenticates})
    return servers


def unready(broker: BrokerNode) -> list[str]:
    """Return why clients should use another broker.

    With a full disk it can still be read, and coordinates its groups.
    """
    return [*([] if broker.membership.alive else [NO_MEMBER]), *broken_partitions(broker)]


def broken_partitions(broker: BrokerNode) -> list[str]:
    """Return one line per reason, because a failed disk affects every partition on it."""
    names: dict[str, list[str]] = {}
    for (topic, index), error in sorted(broker.partitions.broken().items()):
        names.setdefault(str(error), []).append(f"{topic}-{index}")
    return [f"{_some(found)}: {error}" for error, found in names.items()]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return ", ".join(names[:NAMES_MAX]) + more


def visible_topics(broker: BrokerNode, rights: ClientRights) -> list[Topic]:
    """Return the topics that a client may describe, by name."""
    topics = sorted(broker.view.topics(), key=lambda topic: topic.name)
    if not rights.are_checked:
        return topics
    return [topic for topic in topics if rights.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)]


def topics_of(broker: BrokerNode, rights: ClientRights, topics: Sequence[Topic]) -> list[dict[str, Any]]:
    """Return these topics with their sizes, and with their settings where the client may see them."""
    rows = []
    for topic in topics:
        found = [broker.partitions.find(topic.name, info.index) for info in topic.partitions]
        opened = [partition for partition in found if partition is not None]
        shows_settings = rights.allows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name)
        rows.append(
            {
                "name": topic.name,
                "id": str(topic.topic_id),
                "internal": topic.internal,
                "partitions": len(topic.partitions),
                "records": sum(each.high_watermark - each.log_start_offset for each in opened),
                "bytes": sum(each.size_bytes for each in opened),
                "overrides": dict(topic.overrides) if shows_settings else {},
            }
        )
    return rows


def timelines_of(broker: BrokerNode, rights: ClientRights) -> list[dict[str, Any]]:
    """Return every timeline that the client may describe, with its counters since the start, by name."""
    dispatcher = broker.timelines
    if dispatcher is None:
        return []
    return [
        {
            "name": timeline.name,
            "state": timeline.state.value,
            "consumers": len(dispatcher.consumers(timeline.name)),
            "messages": dict(stats.messages) if (stats := dispatcher.stats.get(timeline.name)) else {},
        }
        for timeline in dispatcher.timelines()
        if rights.allows(Operation.DESCRIBE, ResourceType.TOPIC, resource_of(timeline.name))
    ]
