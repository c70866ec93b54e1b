"""The cluster in the console: brokers, leaders, moving partitions, the preview of a rebalance, settings."""

from typing import Any

from tidemill.security.core.resources import CLUSTER_NAME, Operation, ResourceType
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext
from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.servers.http.api.cluster import broker_number, list_moving, planned, read_settings
from tidemill.servers.http.api.cluster_status import read_status
from tidemill.servers.http.console.charts import ChartBar
from tidemill.servers.http.console.page import Page, PageHandler
from tidemill.servers.http.core.rebalance_outcome import outcome_of
from tidemill.wire.http.cluster import BrokerSettingsQuery

MOVES_SHOWN = 200
BARS_MAX = 60


async def cluster_page(context: ApiContext, call: ApiCall[None, None]) -> Page:
    """`/cluster`."""
    status = await read_status(context, call.rights)
    bars = [
        ChartBar(f"broker {each.broker}", (each.leads, max(0, each.replicas - each.leads)))
        for each in status.brokers[:BARS_MAX]
    ]
    return Page(
        "Cluster",
        "cluster/page.html",
        {
            "status": status,
            "moving": await list_moving(context, call),
            "bars": bars,
            "waiting_elections": len(context.broker.reassignments.not_preferred()),
            "may_change": _may(call, Operation.ALTER) and not context.is_readonly,
        },
    )


async def rebalance_page(context: ApiContext, call: ApiCall[None, None]) -> Page:
    """`/cluster/rebalance`."""
    outcome = outcome_of(await planned(context), is_preview=True)
    return Page(
        "Rebalance",
        "cluster/rebalance.html",
        {
            "outcome": outcome,
            "copies": sum(each.copies for each in outcome.moves),
            "shown": MOVES_SHOWN,
            "may_change": _may(call, Operation.ALTER) and not context.is_readonly,
        },
    )


async def broker_page(context: ApiContext, call: ApiCall[BrokerSettingsQuery, None]) -> Page:
    """`/cluster/brokers/{broker}`."""
    number = broker_number(call)
    status = await read_status(context, call.rights)
    broker = next((each for each in status.brokers if each.broker == number), None)
    if broker is None:
        raise ApiProblem(404, f"the cluster has no broker {number}; see the brokers at /cluster")
    sees_settings = broker.report is not None and _may(call, Operation.DESCRIBE_CONFIGS)
    return Page(
        f"Broker {number}",
        "cluster/broker.html",
        {
            "broker": broker,
            "found": await read_settings(context, call) if sees_settings else None,
            "asked": call.query,
            "may_change": _may(call, Operation.ALTER) and not context.is_readonly,
            "may_accept": _may(call, Operation.ALTER_CONFIGS) and not context.is_readonly,
        },
    )


def _may(call: ApiCall[Any, Any], operation: Operation) -> bool:
    return call.rights.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME)


PAGES: dict[str, PageHandler] = {
    "GET /cluster": cluster_page,
    "GET /cluster/rebalance": rebalance_page,
    "GET /cluster/brokers/{broker}": broker_page,
}
