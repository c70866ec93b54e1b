"""SQL in the console: an editor, the tables, and charts of results. Scripts run the queries, through the JSON API."""

import asyncio

from starlette.responses import HTMLResponse, JSONResponse, Response

from tidemill.broker.broker import BrokerNode
from tidemill.security.client_rights import ClientRights
from tidemill.security.core.resources import Operation, ResourceType
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext
from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.servers.http.api.sql import check_any_right, described_tables, has_any_right
from tidemill.servers.http.console.charts import ChartBar, ChartSeries, bar_chart, result_line_chart, tick_text
from tidemill.servers.http.console.page import PAGE_HEADERS, Page, PageHandler
from tidemill.servers.http.core.example_queries import example_queries
from tidemill.servers.http.core.result_axis import result_axis
from tidemill.wire.http.sql import QUERY_CHARS_MAX, ChartRequest, SqlPageQuery

LIMITS = (100, 1_000, 10_000)
BARS_MAX = 200


async def sql_page(context: ApiContext, call: ApiCall[SqlPageQuery, None]) -> Page:
    """`/sql`. The query of the URL does not run by itself, because a link on another page could start it."""
    listed = described_tables(context)
    examples = example_queries(_some_topic(context.broker, call.rights))
    values = {
        "tables": listed.tables,
        "problem": listed.problem,
        "may_query": has_any_right(call.rights),
        "shown": call.query.query or examples[0].query,
        "examples": examples,
        "limits": LIMITS,
        "query_chars_max": QUERY_CHARS_MAX,
    }
    return Page("SQL", "sql/page.html", values)


async def sql_chart(_: ApiContext, call: ApiCall[None, ChartRequest]) -> Response:
    """`POST /sql/chart`: two columns that a script sends back."""
    check_any_right(call.rights)
    try:
        # A thousand rows take tens of milliseconds; a thread draws them while the event loop serves other clients.
        drawn = await asyncio.to_thread(chart_of, call.body)
        return HTMLResponse(drawn, headers=PAGE_HEADERS)
    except ApiProblem as error:
        return JSONResponse({"error": str(error)}, status_code=error.status)


def chart_of(asked: ChartRequest) -> str:
    """The chart as SVG."""
    if len(asked.labels) != len(asked.values):
        raise ApiProblem(400, f"there are {len(asked.labels)} labels and {len(asked.values)} values; send as many")
    if any(value is not None and value < 0 for value in asked.values):
        raise ApiProblem(400, f"{asked.value_name} has values below zero, which charts cannot show; choose another")
    title = f"{asked.value_name} by {asked.label_name}"
    if asked.kind == "bar":
        pairs = list(zip(asked.labels, asked.values, strict=True))[:BARS_MAX]
        bars = [ChartBar(label, (value or 0.0,), tick=tick_text(label)) for label, value in pairs]
        return bar_chart(title, [asked.value_name], bars)
    axis = result_axis(asked.labels)
    labels = [asked.labels[at] for at in axis.order]
    series = ChartSeries(asked.value_name, [asked.values[at] for at in axis.order])
    return result_line_chart(title, asked.label_name, labels, axis.places, series)


def _some_topic(broker: BrokerNode, rights: ClientRights) -> str:
    """The first topic that the client may read, for examples."""
    names = sorted(each.name for each in broker.view.topics() if not each.name.startswith("__"))
    return next((name for name in names if rights.allows(Operation.READ, ResourceType.TOPIC, name)), "orders")


PAGES: dict[str, PageHandler] = {"GET /sql": sql_page, "POST /sql/chart": sql_chart}
