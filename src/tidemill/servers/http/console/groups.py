"""Consumer groups in the console."""

from markupsafe import Markup

from tidemill.broker.history import SAMPLE_MS
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext
from tidemill.servers.http.api.group_description import describe_group
from tidemill.servers.http.api.group_lag_history import MINUTE_MS, lag_histories
from tidemill.servers.http.api.groups import list_groups
from tidemill.servers.http.console.charts import ChartSeries, line_chart, sparkline
from tidemill.servers.http.console.page import Page, PageHandler
from tidemill.wire.http.groups import GroupDescriptionQuery, GroupLagHistory, GroupQuery

STATES = (
    "Stable",
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Dead",
)
SPARK_SLOTS = 5 * MINUTE_MS // SAMPLE_MS
CHART_SLOTS = 10 * MINUTE_MS // SAMPLE_MS


async def groups_page(context: ApiContext, call: ApiCall[GroupQuery, None]) -> Page:
    """`/groups`."""
    found = await list_groups(context, call)
    histories = await lag_histories(context, call.rights, [row.group for row in found.groups], SPARK_SLOTS)
    sparks = {
        each.group: sparkline(f"lag of {each.group}", [sample.lag for sample in each.samples]) for each in histories
    }
    values = {"found": found, "asked": call.query, "states": STATES, "sparks": sparks}
    return Page("Groups", "groups/list.html", values)


async def group_page(context: ApiContext, call: ApiCall[GroupDescriptionQuery, None]) -> Page:
    """`/groups/NAME`."""
    name = call.name()
    found = await describe_group(context, call.rights, name, call.query)
    [history] = await lag_histories(context, call.rights, [name], CHART_SLOTS)
    values = {"group": found, "asked": call.query, "charts": _charts(history)}
    return Page(name, "groups/group.html", values)


def _charts(history: GroupLagHistory) -> list[tuple[str, Markup]]:
    """The lag in records and in seconds, unless the client may not see it."""
    if all(sample.lag is None for sample in history.samples):
        return []
    times_ms = [sample.time_ms for sample in history.samples]
    records = [ChartSeries("records", [sample.lag for sample in history.samples])]
    seconds = [ChartSeries("age", [sample.lag_s for sample in history.samples])]
    return [
        ("Records not read", line_chart("Lag in records", times_ms, records)),
        ("Age of the oldest unread record", line_chart("Lag in seconds", times_ms, seconds, "seconds")),
    ]


PAGES: dict[str, PageHandler] = {"GET /groups": groups_page, "GET /groups/{name}": group_page}
