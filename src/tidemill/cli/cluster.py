"""`tidemill cluster`: run one on this machine, see how it is, even out its load, forget brokers that are gone."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tidemill.cli import cluster_clock
from tidemill.cli.connection import TIMEOUT_S, Bootstrap, Client, admin, broker_at, reach
from tidemill.cli.errors import CommandFailed
from tidemill.cli.options import Json, local_folder
from tidemill.cli.output import progress, remark, say, show, show_json

if TYPE_CHECKING:
    from tidemill.pipelines.core.broker import KafkaBroker
    from tidemill.streams.core.insync import Lag

app = typer.Typer(help="Run a cluster, see how it is, even out its load.", no_args_is_help=True)
app.add_typer(cluster_clock.app, name="clock")

BROKERS_MAX = 9
SHOWN_MAX = 20
FACTS = {
    "broker.rack": "rack",
    "process.roles": "roles",
    "tidemill.consumers": "consumers",
    "tidemill.grpc": "grpc",
    "tidemill.replica.lag": "lag",
    "tidemill.state": "state",
    "tidemill.state.reason": "reason",
}
HEALTHY, INACTIVE = "healthy", "inactive"
FACTS_S = 3.0
"""How long a broker has to tell about itself."""


class ClusterNode(NamedTuple):
    """One broker as it tells about itself."""

    node_id: int
    address: str | None
    there: bool
    facts: dict[str, str]


@app.command()
def up(
    brokers: Annotated[int, typer.Option("--brokers", "-n", min=1, max=BROKERS_MAX, help="How many brokers.")] = 3,
    data_dir: Annotated[
        Path, typer.Option(metavar="PATH", parser=local_folder, help="Folder that holds everything the cluster keeps.")
    ] = Path("cluster"),
    kafka_port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Kafka port of the first broker; 0 is any free one.")
    ] = 9092,
    session_ttl_ms: Annotated[int, typer.Option(min=100, help="After so long without a sign a broker is lost.")] = 6000,
) -> None:
    """Start etcd and some brokers on this machine, for a try; Ctrl-C stops all of it.

    A broker that ends (kill one and see) comes back after a few seconds. The data stays in the folder for the next
    time. In production every broker is a `tidemill serve` on a machine of its own, with an etcd of three members.

    Example: tidemill cluster up --brokers 3
    """
    from tidemill.cli.cluster_up import run

    run(brokers, data_dir, kafka_port, session_ttl_ms)


@app.command()
def status(bootstrap: Bootstrap = None, access: Client = None, as_json: Json = False) -> None:
    """Show the brokers, what they do and how they are, and partitions that lack a leader or a replica.

    LAG is how many records a broker lacks of what others lead, at most in one partition, and LAG MS since when.

    Example: tidemill cluster status
    """
    broker = broker_at(bootstrap, access)
    nodes, controller, carried = _look(broker)
    leads = Counter(each.leader for each in carried.values())
    copies = Counter(node for each in carried.values() for node in each.replicas)
    lags = _lags(nodes)
    in_sync = Counter(node for each in carried.values() for node in each.isr)
    rows = [
        {
            "broker": node.node_id,
            "address": node.address,
            "rack": node.facts.get("rack") or None,
            "roles": node.facts.get("roles"),
            "state": node.facts.get("state", INACTIVE),
            "controller": node.node_id == controller,
            "leads": leads[node.node_id],
            "replicas": copies[node.node_id],
            "in sync": in_sync[node.node_id],
            "lag": lags[node.node_id].records if node.node_id in lags else None,
            "lag ms": round(lags[node.node_id].ms) if node.node_id in lags else None,
        }
        for node in nodes
    ]
    short = [
        _short(partition, each) for partition, each in sorted(carried.items()) if len(each.isr) < len(each.replicas)
    ]
    leaderless = sum(each.leader < 0 for each in carried.values())
    if as_json:
        counts = {"partitions": len(carried), "without_leader": leaderless, "under_replicated": len(short)}
        brokers = [{key.replace(" ", "_"): value for key, value in row.items()} for row in rows]
        show_json({"controller": controller, "brokers": brokers, **counts, "short": short})
        return
    show(rows, tuple(rows[0]), as_json=False)
    for node in nodes:
        if node.facts.get("reason"):
            say(f"broker {node.node_id} is {node.facts['state']}: {node.facts['reason']}")
    partitions = f"{len(carried)} partition{'s' if len(carried) != 1 else ''}"
    say(f"{partitions}, {leaderless} without a leader, {len(short)} under-replicated")
    if short:
        show(short[:SHOWN_MAX], ("partition", "leader", "replicas", "isr"), as_json=False)
    if len(short) > SHOWN_MAX:
        say(f"and {len(short) - SHOWN_MAX} more")


@app.command()
def rebalance(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """Spread replicas and leaders evenly over the brokers that are there, with as few moves as possible.

    Replicas are copied before the old ones go; nothing is unavailable meanwhile.

    Example: tidemill cluster rebalance --dry-run
    """
    from tidemill.client.kafka import KafkaClient
    from tidemill.cluster.core.balance import rebalance as decide

    broker = broker_at(bootstrap, access)
    nodes, _, carried = _look(broker)
    carriers = {each.node_id: each.facts.get("rack") or None for each in nodes if _carries(each)}
    moves = decide({key: each.replicas for key, each in carried.items()}, list(carriers), carriers)
    after = {key: moves.get(key, each.replicas) for key, each in carried.items()}
    elections = [key for key, each in sorted(carried.items()) if each.leader != after[key][0]]
    rows = [
        {
            "partition": str(key),
            "leader": carried[key].leader,
            "new leader": after[key][0],
            "replicas": _join(carried[key].replicas),
            "new replicas": _join(after[key]),
        }
        for key in sorted({*moves, *elections})
    ]
    if not dry_run and rows:
        with KafkaClient(broker.options) as client:
            _carry_out(client, moves, elections)
    if as_json:
        show_json([{key.replace(" ", "_"): value for key, value in row.items()} for row in rows])
    else:
        show(
            rows,
            ("partition", "leader", "new leader", "replicas", "new replicas"),
            as_json=False,
            empty="every broker carries and leads its share already",
        )
        if rows:
            say(f"{len(rows)} partitions {'would change' if dry_run else 'changed'}")


@app.command()
def forget(
    broker: Annotated[int, typer.Argument(metavar="BROKER", help="Number of the broker.", min=0)],
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """Take a broker that is gone for good off the list; until then it is shown as inactive.

    It must be stopped, and have no copy of any partition left: move those to other brokers first (`tidemill cluster
    rebalance`). One that starts again all the same is known again.

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
    """Show which brokers a client of a timeline should talk to, best first, with weights.

    Brokers that serve the timeline already come first, up to 4 consumers each, then the least loaded; none gets more
    than 7.

    Example: tidemill cluster choose reminders
    """
    from tidemill.cluster.core.selector import BrokerLoad
    from tidemill.cluster.core.selector import choose as decide

    nodes, _, _ = _look(broker_at(bootstrap, access))
    carriers = {node.node_id: node for node in nodes if _carries(node)}
    loads = [
        BrokerLoad(number, _served(node), healthy=node.facts.get("state") == HEALTHY)
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


def _served(node: ClusterNode) -> dict[str, int]:
    pairs = [part.rpartition("=") for part in node.facts.get("consumers", "").split(",") if part]
    return {name: int(count) for name, _, count in pairs}


def _carry_out(client: Any, moves: dict[Any, Any], elections: list[Any]) -> None:
    refused = [f"{key}: {error}" for key, error in client.reassign(moves).items() if error] if moves else []
    if refused:
        raise CommandFailed(f"not every partition can move: {refused[0]}")
    wait_for_moves(client, len(moves))
    for key, error in client.elect_preferred(elections).items() if elections else ():
        if error is not None:
            remark(f"{key} keeps its leader for now: {error}")


def wait_for_moves(client: Any, total: int) -> None:
    """Wait until no partition is on its way, with a bar for who looks."""
    import time

    with progress("moving", total or None) as advance:
        left = total
        while moving := client.reassignments():
            advance(max(0, left - len(moving)))
            left = min(left, len(moving))
            time.sleep(0.2)
        advance(left)


def _look(broker: "KafkaBroker") -> tuple[list[ClusterNode], int, dict[Any, Any]]:
    """Every broker that is there or that somebody misses, the controller, and who carries what."""
    from tidemill.client.kafka import ClientError, KafkaClient
    from tidemill.model.errors import KafkaError

    reach(broker)
    try:
        with KafkaClient(broker.options) as raw:
            described, carried = raw.cluster(), raw.carriers()
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
    )


def _facts(client: Any, node_ids: list[int]) -> dict[int, dict[str, str]]:
    """What each broker tells about itself; one that does not answer in time is not there."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ConfigResource, ResourceType

    # Each broker is asked by itself: a request may name one broker only.
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
    """How far each broker is behind the others at most, as those say that lead."""
    from tidemill.replication.lag import decode_lags, worst

    return worst(decode_lags(node.facts.get("lag", "")) for node in nodes)


def _carries(node: ClusterNode) -> bool:
    return node.there and "carrier" in node.facts.get("roles", "carrier")


def _short(partition: Any, carried: Any) -> dict[str, Any]:
    return {
        "partition": str(partition),
        "leader": carried.leader if carried.leader >= 0 else None,
        "replicas": _join(carried.replicas),
        "isr": _join(carried.isr),
    }


def _join(nodes: tuple[int, ...]) -> str:
    return ",".join(map(str, nodes))
