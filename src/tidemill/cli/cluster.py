"""`tidemill cluster`: run a cluster on this machine, show its status, rebalance it, unregister brokers."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tidemill.cli import cluster_clock
from tidemill.cli.connection import TIMEOUT_S, Bootstrap, Client, admin, broker_at, reach
from tidemill.cli.errors import CommandFailed
from tidemill.cli.options import Json, local_folder
from tidemill.cli.output import progress, remark, say, show, show_document, show_json

if TYPE_CHECKING:
    from tidemill.cluster.core.broker_load import LoadReport
    from tidemill.cluster.core.rebalance_plan import PartitionPlan
    from tidemill.pipelines.spec.core.broker import KafkaBroker
    from tidemill.streams.core.insync import Lag
    from tidemill.wire.http.cluster import ClusterBroker, ClusterStatus, ShortPartition

app = typer.Typer(help="Run a cluster, show its status, rebalance it.", no_args_is_help=True)
app.add_typer(cluster_clock.app, name="clock")

BROKERS_MAX = 9
SHOWN_MAX = 20
STATUS_COLUMNS = (
    *("broker", "address", "rack", "roles", "state", "controller"),
    *("leads", "replicas", "in sync", "lag", "lag ms"),
)
LOAD_COLUMNS = (
    *("broker", "level", "requests/s", "queue", "delay ms", "cpu cores", "flush ms", "disk", "peers ms", "missing"),
)
FACTS = {
    "broker.rack": "rack",
    "process.roles": "roles",
    "tidemill.consumers": "consumers",
    "tidemill.grpc": "grpc",
    "tidemill.load": "load",
    "tidemill.replica.lag": "lag",
    "tidemill.state": "state",
    "tidemill.state.reason": "reason",
}
HEALTHY, INACTIVE = "healthy", "inactive"
FACTS_S = 3.0
"""Timeout of the status request to a broker."""


class ClusterNode(NamedTuple):
    """One broker with the facts that it reports."""

    node_id: int
    address: str | None
    there: bool
    facts: dict[str, str]


@app.command()
def up(
    brokers: Annotated[int, typer.Option("--brokers", "-n", min=1, max=BROKERS_MAX, help="Number of brokers.")] = 3,
    data_dir: Annotated[
        Path, typer.Option(metavar="PATH", parser=local_folder, help="Directory for all data of the cluster.")
    ] = Path("cluster"),
    kafka_port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Kafka port of the first broker. 0 picks free ports.")
    ] = 9092,
    session_ttl_ms: Annotated[
        int, typer.Option(min=100, help="Time until the session of a lost broker expires.")
    ] = 6000,
    timelines: Annotated[
        str, typer.Option(help="Storage of timelines of every broker: replicated:, sqlite: or postgresql://....")
    ] = "replicated:",
) -> None:
    """Start etcd and several brokers on this machine, to try a cluster. Ctrl-C stops everything.

    A broker that ends is restarted after a few seconds, so you can kill one. The data stays in the directory for the
    next run. In production every broker is a `tidemill serve` on its own machine, with an etcd of three members.

    Example: tidemill cluster up --brokers 3
    """
    from tidemill.cli.cluster_up import run

    run(brokers, data_dir, kafka_port, session_ttl_ms, timelines)


@app.command()
def status(bootstrap: Bootstrap = None, access: Client = None, as_json: Json = False) -> None:
    """Show the brokers with roles and state, and partitions that lack a leader or a replica.

    LAG is the largest number of records that a broker is behind in one partition, LAG MS the time since it fell behind.

    Example: tidemill cluster status
    """
    found = _status(*_look(broker_at(bootstrap, access)))
    if as_json:
        show_document(found)
        return
    show([_status_row(each) for each in found.brokers], STATUS_COLUMNS, as_json=False)
    for each in found.brokers:
        for reason in each.reasons:
            say(f"broker {each.broker} is {each.state}: {reason}")
    partitions = f"{found.partitions} partition{'s' if found.partitions != 1 else ''}"
    say(f"{partitions}, {found.without_leader} without a leader, {found.under_replicated} under-replicated")
    if found.moving:
        say(f"{found.moving} partition{'s are' if found.moving != 1 else ' is'} being copied to other brokers")
    if found.short:
        rows = [
            {
                "partition": each.partition,
                "leader": each.leader,
                "replicas": _join(each.replicas),
                "isr": _join(each.isr),
            }
            for each in found.short[:SHOWN_MAX]
        ]
        show(rows, ("partition", "leader", "replicas", "isr"), as_json=False)
    if len(found.short) > SHOWN_MAX:
        say(f"and {len(found.short) - SHOWN_MAX} more")


@app.command()
def rebalance(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the changes and make none.")] = False,
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """Spread replicas and leaders evenly over the active brokers, with as few moves as possible.

    New replicas copy the data before old ones are removed. All partitions stay available.

    Example: tidemill cluster rebalance --dry-run
    """
    from tidemill.client.kafka import KafkaClient
    from tidemill.cluster.core.rebalance_plan import CarriedPartition, plan_rebalance
    from tidemill.servers.http.core.rebalance_outcome import outcome_of

    broker = broker_at(bootstrap, access)
    nodes, _, carried, _ = _look(broker)
    carriers = {each.node_id: each.facts.get("rack") or None for each in nodes if _carries(each)}
    now = {key: CarriedPartition(each.leader, each.replicas) for key, each in carried.items()}
    plans = plan_rebalance(now, list(carriers), carriers)
    if not dry_run and plans:
        with KafkaClient(broker.options) as client:
            _carry_out(client, plans)
    if as_json:
        show_document(outcome_of(plans, is_preview=dry_run))
        return
    rows = [
        {
            "partition": str(each.partition),
            "leader": each.before.leader,
            "new leader": each.leader,
            "replicas": _join(each.before.replicas),
            "new replicas": _join(each.replicas),
        }
        for each in plans
    ]
    show(
        rows,
        ("partition", "leader", "new leader", "replicas", "new replicas"),
        as_json=False,
        empty="replicas and leaders are already balanced",
    )
    if rows:
        say(f"{len(rows)} partitions {'would change' if dry_run else 'changed'}")


@app.command()
def forget(
    broker: Annotated[int, typer.Argument(metavar="BROKER", help="Id of the broker.", min=0)],
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """Unregister a broker that will not return. Until then `tidemill cluster status` shows it as inactive.

    The broker must be stopped and must have no replica. Move its replicas first with `tidemill cluster rebalance`. If
    the broker starts again, it registers again.

    Example: tidemill cluster forget 3
    """
    from tidemill.client.kafka import ClientError, KafkaClient
    from tidemill.model.errors import KafkaError

    where = broker_at(bootstrap, access)
    reach(where)
    try:
        with KafkaClient(where.options) as raw:
            raw.forget_broker(broker)
    except (KafkaError, ClientError) as error:
        raise CommandFailed(str(error)) from None
    if as_json:
        show_json({"forgotten": broker})
    else:
        say(f"forgot broker {broker}")


@app.command()
def choose(
    timeline: Annotated[str, typer.Argument(metavar="TIMELINE", help="Name of the timeline.")],
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """Show which brokers a client of a timeline should use, best first, with weights.

    Brokers that already serve the timeline come first, up to 4 consumers each, then the least loaded. No broker gets
    more than 7. Overloaded, slow and degraded brokers come last.

    Example: tidemill cluster choose reminders
    """
    from tidemill.cluster.core.broker_load import LoadReport, is_slow
    from tidemill.cluster.core.selector import Candidate
    from tidemill.cluster.core.selector import choose as decide

    nodes, _, _, _ = _look(broker_at(bootstrap, access))
    carriers = {node.node_id: node for node in nodes if _carries(node)}
    reports = {number: _load_of(node) or LoadReport() for number, node in carriers.items()}
    loads = [
        Candidate(
            number,
            _served(node),
            node.facts.get("state") == HEALTHY,
            reports[number].level,
            is_slow(number, reports),
            reports[number].averages.requests_per_s,
        )
        for number, node in carriers.items()
    ]
    rows = [
        {
            "broker": choice.node_id,
            "weight": choice.weight,
            "grpc": carriers[choice.node_id].facts.get("grpc") or None,
            "consumers": _served(carriers[choice.node_id]).get(timeline, 0),
            "timelines": len(_served(carriers[choice.node_id])),
        }
        for choice in decide(timeline, loads)
    ]
    show(rows, ("broker", "weight", "grpc", "consumers", "timelines"), as_json=as_json)


@app.command()
def load(bootstrap: Bootstrap = None, access: Client = None, as_json: Json = False) -> None:
    """Show the load of each broker, as it measures and publishes it: averages of about the last 10 seconds.

    DELAY MS is how late timers of the event loop fire, FLUSH MS the time of one flush of a log file, PEERS MS the
    longest round trip to another broker. MISSING names registered brokers that do not answer this one.

    Example: tidemill cluster load
    """
    from tidemill.servers.http.core.load_rows import load_row
    from tidemill.wire.http.cluster import ClusterLoads, NodeLoad

    nodes = _look(broker_at(bootstrap, access))[0]
    found = {node.node_id: load_row(_load_of(node)) for node in nodes if node.there}
    if as_json:
        show_document(ClusterLoads(brokers=[NodeLoad(broker=number, load=each) for number, each in found.items()]))
        return
    rows = [
        {"broker": number, "level": "unknown"}
        if each is None
        else {
            "broker": number,
            "level": each.level,
            "requests/s": each.requests_per_second,
            "queue": each.queue,
            "delay ms": each.loop_delay_ms,
            "cpu cores": each.cpu_cores,
            "flush ms": each.flush_ms,
            "disk": f"{each.disk_used_share:.0%}",
            "peers ms": max(
                (peer.round_trip_ms for peer in each.peers if peer.round_trip_ms is not None), default=None
            ),
            "missing": _join(peer.broker for peer in each.peers if peer.missing) or None,
        }
        for number, each in found.items()
    ]
    show(rows, LOAD_COLUMNS, as_json=False)


def _load_of(node: ClusterNode) -> "LoadReport | None":
    from tidemill.cluster.core.broker_load import decode_load

    return decode_load(node.facts.get("load", "").encode())


def _served(node: ClusterNode) -> dict[str, int]:
    pairs = [part.rpartition("=") for part in node.facts.get("consumers", "").split(",") if part]
    return {name: int(count) for name, _, count in pairs}


def _carry_out(client: Any, plans: "Sequence[PartitionPlan]") -> None:
    moves = {each.partition: each.replicas for each in plans if each.moves}
    refused = [f"{key}: {error}" for key, error in client.reassign(moves).items() if error] if moves else []
    if refused:
        raise CommandFailed(f"a partition cannot be moved: {refused[0]}")
    wait_for_moves(client, len(moves))
    elections = [each.partition for each in plans if each.elects]
    for key, error in client.elect_preferred(elections).items() if elections else ():
        if error is not None:
            remark(f"{key} keeps its leader: {error}")


def wait_for_moves(client: Any, total: int) -> None:
    """Wait until all moves have finished, with a progress bar on a terminal."""
    import time

    with progress("moving", total or None) as advance:
        left = total
        while moving := client.reassignments():
            advance(max(0, left - len(moving)))
            left = min(left, len(moving))
            time.sleep(0.2)
        advance(left)


def _look(broker: "KafkaBroker") -> tuple[list[ClusterNode], int, dict[Any, Any], int]:
    """Every registered broker, the controller, the replicas of the partitions, and how many are being moved."""
    from tidemill.client.kafka import ClientError, KafkaClient
    from tidemill.model.errors import KafkaError

    reach(broker)
    try:
        with KafkaClient(broker.options) as raw:
            described, carried, moving = raw.cluster(), raw.carriers(), len(raw.reassignments())
    except (KafkaError, ClientError) as error:
        raise CommandFailed(f"describe the cluster: {error}") from None
    facts = _facts(admin(broker), [node.node_id for node in described.brokers if not node.missing])
    nodes = {
        node.node_id: ClusterNode(
            node.node_id,
            str(node.address) if node.address else None,
            not node.missing,
            facts.get(node.node_id, {"rack": node.rack or ""}),
        )
        for node in described.brokers
    }
    missed = {node for each in carried.values() for node in each.replicas} - set(nodes)
    return (
        sorted([*nodes.values(), *(ClusterNode(node, None, False, {}) for node in missed)]),
        described.controller,
        carried,
        moving,
    )


def _facts(client: Any, node_ids: list[int]) -> dict[int, dict[str, str]]:
    """The facts that each broker reports. A broker that does not answer in time is left out."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ConfigResource, ResourceType

    # One request per broker, because a request may name only one broker.
    asked = {}
    for node_id in node_ids:
        resource = ConfigResource(ResourceType.BROKER, str(node_id))
        asked[node_id] = client.describe_configs([resource], request_timeout=FACTS_S)[resource]
    found: dict[int, dict[str, str]] = {}
    for node_id, future in asked.items():
        try:
            entries = future.result(TIMEOUT_S)
            found[node_id] = {FACTS[name]: entry.value or "" for name, entry in entries.items() if name in FACTS}
        except (KafkaException, TimeoutError):
            found[node_id] = {"state": INACTIVE}
    return found


def _lags(nodes: list[ClusterNode]) -> dict[int, "Lag"]:
    """The largest lag of each broker, as reported by the leaders."""
    from tidemill.replication.lag import decode_lags, worst

    return worst(decode_lags(node.facts.get("lag", "")) for node in nodes)


def _carries(node: ClusterNode) -> bool:
    return node.there and "carrier" in node.facts.get("roles", "carrier")


def _status(nodes: list[ClusterNode], controller: int, carried: Mapping[Any, Any], moving: int) -> "ClusterStatus":
    """The status as the JSON API has it. What only the HTTP server of a broker knows is left out."""
    from tidemill.servers.http.core.load_rows import load_row
    from tidemill.wire.http.cluster import ClusterBroker, ClusterStatus

    leads = Counter(each.leader for each in carried.values())
    copies = Counter(node for each in carried.values() for node in each.replicas)
    in_sync = Counter(node for each in carried.values() for node in each.isr)
    lags = _lags(nodes)
    return ClusterStatus(
        controller=controller,
        brokers=[
            ClusterBroker(
                broker=node.node_id,
                address=node.address,
                rack=node.facts.get("rack") or None,
                roles=node.facts.get("roles"),
                state=node.facts.get("state", INACTIVE),
                controller=node.node_id == controller,
                leads=leads[node.node_id],
                replicas=copies[node.node_id],
                in_sync=in_sync[node.node_id],
                lag=lags[node.node_id].records if node.node_id in lags else None,
                lag_ms=round(lags[node.node_id].ms) if node.node_id in lags else None,
                reasons=[node.facts["reason"]] if node.facts.get("reason") else [],
                report=None,
                load=load_row(_load_of(node)),
            )
            for node in nodes
        ],
        partitions=len(carried),
        without_leader=sum(each.leader < 0 for each in carried.values()),
        under_replicated=sum(len(each.isr) < len(each.replicas) for each in carried.values()),
        under_min_isr=None,
        moving=moving,
        short=[_short(key, each) for key, each in sorted(carried.items()) if len(each.isr) < len(each.replicas)],
        unreachable_brokers=[node.node_id for node in nodes if "roles" not in node.facts],
    )


def _status_row(broker: "ClusterBroker") -> dict[str, Any]:
    return {column: getattr(broker, column.replace(" ", "_")) for column in STATUS_COLUMNS}


def _short(partition: Any, carried: Any) -> "ShortPartition":
    from tidemill.wire.http.cluster import ShortPartition

    return ShortPartition(
        partition=str(partition),
        leader=carried.leader if carried.leader >= 0 else None,
        replicas=list(carried.replicas),
        isr=list(carried.isr),
    )


def _join(nodes: Iterable[int]) -> str:
    return ",".join(map(str, nodes))
