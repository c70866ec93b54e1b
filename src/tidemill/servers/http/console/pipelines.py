"""Pipelines in the console."""

from collections.abc import Callable, Sequence

from markupsafe import Markup

from tidemill.pipeline_reports.core.pipeline_state import ALIVE, STATES
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext
from tidemill.servers.http.api.pipelines import list_pipelines, show_pipeline
from tidemill.servers.http.console.charts import COLOURS, ChartSeries, line_chart
from tidemill.servers.http.console.dataset_graph import dataset_graph, edges_in_words
from tidemill.servers.http.console.page import Page, PageHandler
from tidemill.servers.http.console.rendering import segment
from tidemill.wire.http.pipelines import (
    PipelineDataset,
    PipelineDescription,
    PipelineDescriptionQuery,
    PipelineQuery,
    PipelineSamples,
)

MINUTES = (5, 10, 30)
LINKS = {"topic": "/topics/", "timeline": "/timelines/"}
CHARTS: Sequence[tuple[str, str, Callable[[PipelineSamples], Sequence[float | None]], str]] = (
    ("Rows read per second", "at the last micro-batch", lambda each: each.rows_in_per_s, "rate"),
    ("Records not read", "the lag of each query", lambda each: each.lag, "count"),
    ("Duration of a micro-batch", "the last one with rows", lambda each: each.batch_s, "seconds"),
    ("Memory of the state", "of groups, joins and windows", lambda each: each.state_bytes, "bytes"),
)


async def pipelines_page(context: ApiContext, call: ApiCall[PipelineQuery, None]) -> Page:
    """`/pipelines`."""
    host, port = context.broker.view.address
    values = {
        "found": await list_pipelines(context, call),
        "asked": call.query,
        "states": STATES,
        "bootstrap": f"{host}:{port}",
    }
    return Page("Pipelines", "pipelines/list.html", values)


async def pipeline_page(context: ApiContext, call: ApiCall[PipelineDescriptionQuery, None]) -> Page:
    """`/pipelines/NAME`."""
    found = await show_pipeline(context, call)
    links = [_link(each) for each in found.datasets]
    values = {
        "pipeline": found,
        "asked": call.query,
        "minutes": MINUTES,
        "is_alive": found.state in ALIVE,
        "charts": list(_charts(found)),
        "graph": dataset_graph(f"Datasets of {found.pipeline}", found.datasets, links) if found.datasets else None,
        "edges": edges_in_words(found.datasets),
        "sums": _sums(found),
    }
    return Page(found.pipeline, "pipelines/pipeline.html", values)


def _link(dataset: PipelineDataset) -> str:
    base = LINKS.get(dataset.kind)
    return "" if base is None else base + segment(dataset.name)


def _charts(found: PipelineDescription) -> Sequence[tuple[str, str, Markup]]:
    """Charts of the queries that have most, as many as there are colours."""
    made = []
    for title, note, values_of, unit in CHARTS:
        shown = [query for query in found.queries if unit != "bytes" or query.state_bytes is not None]
        rows = [(query.query, values_of(query.samples)) for query in shown]
        if not any(value for _, values in rows for value in values):
            continue
        rows.sort(key=lambda row: -max((value for value in row[1] if value is not None), default=0.0))
        series = [ChartSeries(name, values) for name, values in sorted(rows[:COLOURS])]
        more = f"; {len(rows) - COLOURS} more queries" if len(rows) > COLOURS else ""
        made.append((title, note + more, line_chart(title, found.times_ms, series, unit)))
    return made


def _sums(found: PipelineDescription) -> dict[str, float | None]:
    """The numbers at the top of the page."""
    lags = [query.lag for query in found.queries if query.lag is not None]
    memory = [query.state_bytes for query in found.queries if query.state_bytes is not None]
    batches = [query.batch_s for query in found.queries if query.batch_s is not None]
    ages = [query.lag_s for query in found.queries if query.lag_s is not None]
    return {
        "rows_in_per_s": sum(query.rows_in_per_s for query in found.queries),
        "rows_in": sum(query.rows_in for query in found.queries),
        "lag": sum(lags) if lags else None,
        "lag_s": max(ages, default=None),
        "batch_s": max(batches, default=None),
        "state_bytes": sum(memory) if memory else None,
        "state_rows": sum(query.state_rows or 0 for query in found.queries),
    }


PAGES: dict[str, PageHandler] = {"GET /pipelines": pipelines_page, "GET /pipelines/{name}": pipeline_page}
