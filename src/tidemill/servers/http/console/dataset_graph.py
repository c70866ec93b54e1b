"""The graph of a pipeline's datasets as SVG, with its edges in words. Names are text, whatever they contain."""

from collections.abc import Sequence

from markupsafe import Markup

from tidemill.servers.http.core.graph_layout import GraphPlace, layout
from tidemill.wire.http.pipelines import PipelineDataset

BOX_WIDTH, BOX_HEIGHT = 164, 48
GAP_X, GAP_Y = 38, 16
EDGE = 2
"""Room for the lines of boxes at the edge of the drawing."""
NAME_CHARS, DETAIL_CHARS = 18, 22
KINDS = {
    "topic": "Topic",
    "timeline": "Timeline",
    "transformation": "Transformation",
    "query": "Query",
    "lake": "Lake",
    "table": "Table",
    "console": "Console",
    "other": "Sink",
}


def dataset_graph(title: str, datasets: Sequence[PipelineDataset], links: Sequence[str]) -> Markup:
    """The drawing. `links` are the pages of the datasets; empty for those without one."""
    places = layout([each.reads for each in datasets])
    width = (max(place.column for place in places) + 1) * (BOX_WIDTH + GAP_X) - GAP_X + 2 * EDGE
    height = (max(place.row for place in places) + 1) * (BOX_HEIGHT + GAP_Y) - GAP_Y + 2 * EDGE
    lines = Markup("").join(
        Markup('<path class="edge" d="{}"/>').format(_line(places[read], places[at]))
        for at, each in enumerate(datasets)
        for read in each.reads
    )
    boxes = Markup("").join(_box(each, places[at], links[at]) for at, each in enumerate(datasets))
    return Markup(
        '<svg class="dataset-graph" role="group" aria-label="{}" width="{:.0f}" height="{:.0f}" '
        'viewBox="0 0 {:.0f} {:.0f}"><desc>{}</desc><g aria-hidden="true">{}</g>{}</svg>'
    ).format(title, width, height, width, height, "; ".join(edges_in_words(datasets)), lines, boxes)


def edges_in_words(datasets: Sequence[PipelineDataset]) -> list[str]:
    """What each dataset is made from, and those that nothing reads or writes."""
    read = {place for each in datasets for place in each.reads}
    made = [
        f"{_named(each)} reads {', '.join(_named(datasets[place]) for place in each.reads)}"
        for each in datasets
        if each.reads
    ]
    alone = [_named(each) for at, each in enumerate(datasets) if not each.reads and at not in read]
    return made + ([f"not connected: {', '.join(alone)}"] if alone else [])


def _named(dataset: PipelineDataset) -> str:
    return f"{KINDS.get(dataset.kind, dataset.kind).lower()} {dataset.name}"


def _corner(place: GraphPlace) -> tuple[float, float]:
    return place.column * (BOX_WIDTH + GAP_X) + EDGE, place.row * (BOX_HEIGHT + GAP_Y) + EDGE


def _line(start: GraphPlace, end: GraphPlace) -> str:
    """A curve from the right side of a box to the left side of another."""
    x1, y1 = _corner(start)
    x2, y2 = _corner(end)
    x1, y1, y2 = x1 + BOX_WIDTH, y1 + BOX_HEIGHT / 2, y2 + BOX_HEIGHT / 2
    bend = max(GAP_X / 2, (x2 - x1) / 2)
    return f"M{x1:.1f} {y1:.1f}C{x1 + bend:.1f} {y1:.1f} {x2 - bend:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"


def _box(dataset: PipelineDataset, place: GraphPlace, link: str) -> Markup:
    x, y = _corner(place)
    kind = dataset.kind if dataset.kind in KINDS else "other"
    detail = dataset.detail if kind == "transformation" and dataset.detail else _detail(KINDS[kind], dataset.detail)
    drawn = Markup(
        '<title>{}</title><rect class="box {}" x="{:.1f}" y="{:.1f}" width="{}" height="{}" rx="7"/>'
        '<rect class="band {}" x="{:.1f}" y="{:.1f}" width="4" height="{}" rx="2"/>'
        '<text class="name" x="{:.1f}" y="{:.1f}">{}</text><text x="{:.1f}" y="{:.1f}">{}</text>'
    ).format(
        f"{dataset.name} ({detail})",
        kind,
        x,
        y,
        BOX_WIDTH,
        BOX_HEIGHT,
        kind,
        x,
        y,
        BOX_HEIGHT,
        x + 14,
        y + 20,
        _cut(dataset.name, NAME_CHARS),
        x + 14,
        y + 37,
        _cut(detail, DETAIL_CHARS),
    )
    if link:
        return Markup('<a href="{}">{}</a>').format(link, drawn)
    return Markup("<g>{}</g>").format(drawn)


def _detail(kind: str, detail: str) -> str:
    return f"{kind}, {detail}" if detail else kind


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[: chars - 1]}…"
