"""The documents of the cluster and of its brokers."""

from typing import Annotated

import msgspec

from tidemill.wire.http.document import Document, Input

MOVES_MAX = 10_000
"""The most partitions that a rebalance reports."""
PROBLEMS_MAX = 20
"""The most refusals that a change reports."""


class HealthProblem(Document, frozen=True, kw_only=True):
    """One thing that is wrong at a broker."""

    part: str
    """What it concerns: records, disk, clock, timelines, tasks, certificates or membership."""
    text: str
    next_step: str = ""


class ClockStatus(Document, frozen=True, kw_only=True):
    """Whether a broker trusts its wall clock. While it does not, it deletes nothing by time."""

    state: str
    wall_ms: int
    reasons: list[str]
    in_doubt_ms: int
    accepted_in_ms: int | None
    accepted_by: str | None


class ServerRow(Document, frozen=True, kw_only=True):
    """One server of a broker: its address for clients, and how it authenticates them."""

    server: str
    """kafka, grpc or http."""
    listener: str
    address: str
    protocol: str
    authenticates: bool
    certificate_expires_ms: int | None = None
    """When its certificate expires; null without TLS."""


class FollowerLag(Document, frozen=True, kw_only=True):
    """How far a follower is behind in the partitions of one leader."""

    broker: int
    records: int
    ms: float


class BrokerReport(Document, frozen=True, kw_only=True):
    """What only the broker itself knows."""

    version: str
    uptime_s: float
    state: str
    problems: list[HealthProblem]
    notes: list[str]
    clock: ClockStatus | None
    servers: list[ServerRow]
    is_anonymous: bool
    """Whether everyone may connect, because the setting allow.anonymous is on."""
    storage: str
    disk_total_bytes: int | None
    disk_free_bytes: int | None
    log_bytes: int
    connections: int
    lags: list[FollowerLag]
    timelines: int
    shares_timelines: bool = False
    """Whether other brokers have the same timelines, in a shared store."""
    recent_errors: int = 0
    """Different errors in the log of the last ten minutes."""


class NoQuestion(Document, frozen=True, kw_only=True):
    """A question without choices."""


class PeerRoundTrip(Document, frozen=True, kw_only=True):
    """The connection from a broker to another one."""

    broker: int
    round_trip_ms: float | None
    """Smoothed; null while it was not measured."""
    missing: bool
    """Whether the other broker is registered and does not answer."""


class LoadRow(Document, frozen=True, kw_only=True):
    """The measured load of a broker: averages with a half-life of 10 s."""

    level: str
    """normal, busy or overloaded."""
    requests_per_second: float
    queue: float
    """Requests that are being served."""
    loop_delay_ms: float
    cpu_cores: float
    flush_ms: float
    disk_used_share: float
    clients_round_trip_ms: float
    """The round trip to consumers of timelines; 0 without consumers."""
    peers: list[PeerRoundTrip]


class NodeLoad(Document, frozen=True, kw_only=True):
    """A broker and its load; null if it does not report one."""

    broker: int
    load: LoadRow | None


class ClusterLoads(Document, frozen=True, kw_only=True):
    """The loads of all connected brokers."""

    brokers: list[NodeLoad]


class ClusterBroker(Document, frozen=True, kw_only=True):
    """One broker of the cluster. Fields after `lag_ms` are null for a broker that does not answer."""

    broker: int
    address: str | None
    rack: str | None
    roles: str | None
    state: str
    controller: bool
    leads: int
    replicas: int
    in_sync: int
    lag: int | None
    """The largest number of records that it lacks in one partition."""
    lag_ms: int | None
    reasons: list[str]
    report: BrokerReport | None
    load: LoadRow | None = None
    """What it has published last; null for a broker that is not connected."""


class ShortPartition(Document, frozen=True, kw_only=True):
    """A partition with a replica that is not in sync, or without a leader."""

    partition: str
    leader: int | None
    replicas: list[int]
    isr: list[int]


class ClusterStatus(Document, frozen=True, kw_only=True):
    """The brokers, and the partitions that lack something."""

    controller: int
    brokers: list[ClusterBroker]
    partitions: int
    without_leader: int
    under_replicated: int
    under_min_isr: int | None
    """Partitions that refuse acks=all; null in commands, which do not read the settings of all topics."""
    moving: int
    """Partitions that are being copied to more brokers, or to others."""
    short: list[ShortPartition]
    """The first of them."""
    unreachable_brokers: list[int]


class MovingPartition(Document, frozen=True, kw_only=True):
    """A partition that moves to other brokers. `progress` is the share that its new replicas have."""

    topic: str
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]
    bytes: int | None
    lag: int | None
    """The records that the slowest new replica lacks; null while it has not begun."""
    progress: float | None


class MovingPartitions(Document, frozen=True, kw_only=True):
    """All partitions that are being moved."""

    partitions: list[MovingPartition]
    total: int
    unreachable_brokers: list[int]


class MovingReplica(Document, frozen=True, kw_only=True):
    """How far the new replicas of a partition are, as its leader knows."""

    topic: str
    partition: int
    bytes: int
    lag: int | None
    progress: float | None


class MovingPart(Document, frozen=True, kw_only=True):
    """The moving partitions that one broker leads."""

    partitions: list[MovingReplica]


class PlannedMove(Document, frozen=True, kw_only=True):
    """A partition whose leader or replicas change."""

    partition: str
    leader: int
    new_leader: int
    replicas: list[int]
    new_replicas: list[int]
    copies: bool
    """Whether a broker must copy the records of the partition."""


class RebalanceOutcome(Document, frozen=True, kw_only=True):
    """The moves of a rebalance. They continue in the background; see the moving partitions of the cluster."""

    dry_run: bool
    moves: list[PlannedMove]
    total: int
    problems: list[str]
    """Partitions that keep their replicas or their leader, with the reason."""


class ElectionOutcome(Document, frozen=True, kw_only=True):
    """The partitions whose first replica leads again."""

    elected: int
    problems: list[str]


class BrokerSettingRow(Document, frozen=True, kw_only=True):
    """One setting of a broker. The value of a secret is null."""

    name: str
    value: str | None
    default: str | None
    is_default: bool
    doc: str


class BrokerSettingList(Document, frozen=True, kw_only=True):
    """All settings of one broker. They are set at its start."""

    broker: int
    settings: list[BrokerSettingRow]


class BrokerSettingsQuery(Input, frozen=True, kw_only=True):
    """Which settings are shown."""

    search: Annotated[str, msgspec.Meta(max_length=100, description="Part of a name.")] = ""
    changed: bool = False
    """Only settings that do not have their default."""


class AcceptedClock(Document, frozen=True, kw_only=True):
    """The reasons to doubt the clock that ended."""

    broker: int
    ended: list[str]
