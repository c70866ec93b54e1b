"""The status of the cluster: every broker, from the image and from its own report, and what is short of replicas."""

from collections.abc import Iterable

from tidemill.broker.broker import BrokerNode
from tidemill.broker.health import cluster_health
from tidemill.cluster.core.image import Image
from tidemill.replication.lag import worst
from tidemill.security.client_rights import ClientRights
from tidemill.servers.http.api.api_context import ApiContext
from tidemill.servers.http.api.broker_parts import Gathered
from tidemill.servers.http.api.broker_reports import REPORT
from tidemill.servers.http.core.cluster_counts import ClusterCounts, count_cluster
from tidemill.servers.http.core.load_rows import load_row
from tidemill.streams.core.insync import Lag
from tidemill.wire.http.cluster import BrokerReport, ClusterBroker, ClusterStatus, NoQuestion, ShortPartition

_counted: list[tuple[Image, ClusterCounts]] = []
"""The last image that was counted. Pages ask again every few seconds, and the image rarely changes."""


def counts_of(image: Image) -> ClusterCounts:
    """The counts of an image."""
    for known, counts in _counted:
        if known is image:
            return counts
    counts = count_cluster(image)
    _counted[:] = [(image, counts)]
    return counts


async def read_status(context: ApiContext, rights: ClientRights) -> ClusterStatus:
    """The brokers with their reports. The client must be allowed to DESCRIBE the cluster."""
    gathered = await context.parts.gather(REPORT, rights, NoQuestion())
    image = context.broker.view.image
    counts = counts_of(image)
    return ClusterStatus(
        controller=context.broker.view.controller_id,
        brokers=_brokers(context.broker, counts, gathered),
        partitions=counts.partitions,
        without_leader=counts.without_leader,
        under_replicated=counts.under_replicated,
        under_min_isr=counts.under_min_isr,
        moving=sum(1 for _ in context.broker.reassignments.under_way()),
        short=[
            ShortPartition(
                partition=str(place),
                leader=info.leader if info.leader >= 0 else None,
                replicas=list(info.replicas),
                isr=list(info.isr),
            )
            for place, info in counts.short
        ],
        unreachable_brokers=gathered.unreachable,
    )


def _brokers(broker: BrokerNode, counts: ClusterCounts, gathered: Gathered[BrokerReport]) -> list[ClusterBroker]:
    image = broker.view.image
    addresses = {each.node_id: f"{each.host}:{each.port}" for each in broker.view.brokers() if each.port}
    lags = worst(_lags(gathered.parts.values()))
    loads = broker.loads.reports()
    found = []
    for seen in cluster_health(image):
        node = seen.broker
        registration, report = image.brokers.get(node), gathered.parts.get(node)
        lag = lags.get(node)
        reasons = [problem.text for problem in report.problems] if report is not None else [seen.reason]
        found.append(
            ClusterBroker(
                broker=node,
                address=addresses.get(node),
                rack=None if registration is None else registration.rack,
                roles=",".join(seen.roles) or None,
                state=seen.state if report is None else report.state,
                controller=node == broker.view.controller_id,
                leads=counts.leads[node],
                replicas=counts.replicas[node],
                in_sync=counts.in_sync[node],
                lag=None if lag is None else lag.records,
                lag_ms=None if lag is None else round(lag.ms),
                reasons=[reason for reason in reasons if reason],
                report=report,
                load=load_row(loads.get(node)) if registration is not None else None,
            )
        )
    return found


def _lags(reports: Iterable[BrokerReport]) -> list[dict[int, Lag]]:
    return [{each.broker: Lag(each.records, each.ms) for each in report.lags} for report in reports]
