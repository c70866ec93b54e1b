"""The part of a view of brokers that each makes about itself: health, servers, disk, and the lag of its followers."""

from collections.abc import Iterator

from tidemill import __version__
from tidemill.broker.broker import BrokerNode
from tidemill.broker.health import DISK_FULL, notes_of
from tidemill.broker.loop_turns import LoopTurns
from tidemill.cluster.core.registration import DEGRADED, HEALTHY, INACTIVE
from tidemill.model.listeners import GRPC, HTTP
from tidemill.replication.lag import worst
from tidemill.security.client_rights import ClientRights
from tidemill.security.core.resources import CLUSTER_NAME, Operation, ResourceType
from tidemill.servers.http.api.broker_parts import REUSED_S, PartKind
from tidemill.servers.http.broker_summary import NO_MEMBER, broken_partitions, security_of
from tidemill.streams.core.insync import Lag
from tidemill.timelines.health import TimelinesState
from tidemill.wire.http.cluster import (
    BrokerReport,
    ClockStatus,
    FollowerLag,
    HealthProblem,
    NoQuestion,
    ServerRow,
)

ERRORS_S = 600.0
CLOCK_STEP = "Compare the clock of the machine with others. If it is correct, accept it on the page of the cluster."
DISK_STEP = "Free disk space, or lower the retention of large topics."
PEERS_STEP = "Check the network between the brokers, and the advertised addresses."
RECORDS_STEP = "Check the disk, then restart the broker."
TASKS_STEP = "Look at the log of the broker; the task is restarted."
TIMELINES_STEP = "Check the store of the timelines, and the clocks of its machine and of this one."


async def report_of(broker: BrokerNode, rights: ClientRights, _: NoQuestion) -> BrokerReport:
    """What this broker knows about itself, for a client that may DESCRIBE the cluster."""
    rights.check(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    lags: dict[int, Lag] = {}
    log_bytes = 0
    async for partition in LoopTurns().over(list(broker.partitions)):
        log_bytes += partition.size_bytes
        if partition.leads and partition.term is not None and len(partition.term.replicas) > 1:
            lags = worst((lags, partition.leader.lags))
    usage = await broker.partitions.store.usage()
    problems = list(problems_of(broker))
    return BrokerReport(
        version=__version__,
        uptime_s=broker.history.uptime_s(),
        state=INACTIVE if not broker.membership.alive else DEGRADED if problems else HEALTHY,
        problems=problems,
        notes=notes_of(broker.partitions, broker.view.image, broker.move_notes()),
        clock=clock_of(broker),
        servers=servers_of(broker),
        is_anonymous=broker.settings.security.allow_anonymous,
        storage=usage.place,
        disk_total_bytes=usage.total_bytes if usage.total_bytes >= 0 else None,
        disk_free_bytes=usage.usable_bytes if usage.usable_bytes >= 0 else None,
        log_bytes=log_bytes,
        connections=sum(broker.metrics.connections.values()),
        lags=[FollowerLag(broker=node, records=lag.records, ms=lag.ms) for node, lag in sorted(lags.items())],
        timelines=0 if broker.timelines is None else sum(1 for _ in broker.timelines.timelines()),
        shares_timelines=broker.timelines is not None and broker.timelines.is_shared,
        recent_errors=_recent_errors(broker),
    )


def problems_of(broker: BrokerNode) -> Iterator[HealthProblem]:
    """Everything that is wrong at this broker."""
    if not broker.membership.alive:
        yield HealthProblem(part="membership", text=NO_MEMBER, next_step="Check the coordination service.")
    for line in [*broken_partitions(broker), *broker.partitions.store.missing]:
        yield HealthProblem(part="records", text=line, next_step=RECORDS_STEP)
    if broker.partitions.store.full or broker.partitions.lacks_room:
        yield HealthProblem(part="disk", text=DISK_FULL, next_step=DISK_STEP)
    if broker.loads.verdict:
        yield HealthProblem(part="membership", text=broker.loads.verdict.text(), next_step=PEERS_STEP)
    clock = clock_of(broker)
    if clock is not None:
        for reason in clock.reasons:
            yield HealthProblem(part="clock", text=reason, next_step=CLOCK_STEP)
    health = None if broker.timelines is None else broker.timelines.health()
    if health is not None and health.state is TimelinesState.DEGRADED:
        for reason in health.reasons:
            yield HealthProblem(part="timelines", text=reason, next_step=TIMELINES_STEP)
    for reason in broker.supervisor.reasons():
        yield HealthProblem(part="tasks", text=reason, next_step=TASKS_STEP)
    for note in broker.certificates:
        yield HealthProblem(
            part="certificates", text=f"{note.certificate}: {note.reason}", next_step=f"Do this: {note.next_step}."
        )


def _recent_errors(broker: BrokerNode) -> int:
    """How many errors this broker has logged in the last minutes, since its start."""
    log = broker.environment.recent_log
    if log is None:
        return 0
    return log.errors_since(int(broker.clock_ms() - 1_000 * min(ERRORS_S, broker.history.uptime_s())))


def clock_of(broker: BrokerNode) -> ClockStatus | None:
    """Whether the wall clock is trusted; None without a watch."""
    if broker.clock is None:
        return None
    status = broker.clock.status()
    return ClockStatus(
        state=status["state"],
        wall_ms=status["wall_ms"],
        reasons=[reason["text"] for reason in status["reasons"]],
        in_doubt_ms=status["in_doubt_ms"],
        accepted_in_ms=status["accepted_in_ms"],
        accepted_by=status["accepted_by"],
    )


def servers_of(broker: BrokerNode) -> list[ServerRow]:
    """The servers of this broker, with the addresses that clients use."""
    mine = broker.membership.registration
    addresses = {GRPC: mine.grpc, HTTP: mine.http}
    return [
        ServerRow(
            server=each["server"],
            listener=each.get("listener", ""),
            address=str(mine.listeners.get(each["listener"], "") if "listener" in each else addresses[each["server"]]),
            protocol=each["protocol"],
            authenticates=each["authenticates"],
            certificate_expires_ms=_expires_ms(broker, each.get("listener", each["server"])),
        )
        for each in security_of(broker)
    ]


def _expires_ms(broker: BrokerNode, server: str) -> int | None:
    expires = broker.certificate_expiries.get(server)
    return None if expires is None else int(expires.timestamp() * 1000)


REPORT = PartKind("broker-report", NoQuestion, BrokerReport, report_of, REUSED_S)
