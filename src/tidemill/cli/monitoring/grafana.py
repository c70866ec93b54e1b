"""Grafana dashboards from tables: a board is a list of sections, a section a list of panels.

Panels flow from left to right into a grid of 24 columns. `SCOPE` in an expression stands for the cluster and the
brokers that are chosen on the dashboard.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

SCHEMA_VERSION = 39
GRID_COLUMNS = 24
SECTION_HEIGHT = 1
SCOPE = 'cluster=~"$cluster",instance=~"$broker"'
TAG = "tidemill"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
GREEN, YELLOW, RED = "green", "#EAB839", "red"
Kind = Literal["timeseries", "stat", "table", "heatmap", "bargauge"]


class PanelQuery(NamedTuple):
    """An expression of PromQL and the legend of its series."""

    expr: str
    legend: str = ""


class Thresholds(NamedTuple):
    """From which value on a panel is yellow and red; None: never."""

    warning: float | None = None
    critical: float | None = None


class Panel(NamedTuple):
    """One panel. `unit` is an id of Grafana's units."""

    title: str
    description: str
    queries: Sequence[PanelQuery]
    unit: str = "short"
    kind: Kind = "timeseries"
    width: int = 8
    height: int = 8
    thresholds: Thresholds = Thresholds()
    is_stacked: bool = False
    can_be_negative: bool = False


class PanelRow(NamedTuple):
    """A row of the dashboard with its panels."""

    title: str
    panels: Sequence[Panel]


class BoardVariable(NamedTuple):
    """A choice at the top of the dashboard: the values of a label."""

    name: str
    label: str
    values: str


class Board(NamedTuple):
    """One dashboard."""

    name: str
    title: str
    description: str
    variables: Sequence[BoardVariable]
    sections: Sequence[PanelRow]

    @property
    def file_name(self) -> str:
        """The file that this dashboard is written to."""
        return f"{self.name}.json"


CLUSTER = BoardVariable("cluster", "Cluster", "label_values(tidemill_build_info, cluster)")
BROKER = BoardVariable("broker", "Broker", 'label_values(tidemill_build_info{cluster=~"$cluster"}, instance)')


def queries_of(board: Board) -> Iterator[str]:
    """Every expression of a dashboard, as its panels have them."""
    return (query.expr for section in board.sections for panel in section.panels for query in panel.queries)


def dashboard(board: Board) -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    return {
        "uid": f"tidemill-{board.name}",
        "title": board.title,
        "description": board.description,
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "timepicker": {},
        "annotations": {"list": []},
        "links": [_links()],
        "templating": {"list": [_datasource(), *map(_variable, board.variables)]},
        "panels": list(_panels(board.sections)),
    }


def _links() -> dict[str, Any]:
    return {
        "type": "dashboards",
        "title": "Tidemill",
        "tags": [TAG],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
    }


def _datasource() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "hide": 0,
        "refresh": 1,
        "regex": "",
    }


def _variable(variable: BoardVariable) -> dict[str, Any]:
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": variable.values,
        "query": {"query": variable.values, "refId": variable.name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "hide": 0,
        "regex": "",
    }


def _panels(sections: Iterable[PanelRow]) -> Iterator[dict[str, Any]]:
    top, number = 0, 0
    for section in sections:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": section.title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": top, "w": GRID_COLUMNS, "h": SECTION_HEIGHT},
        }
        top += SECTION_HEIGHT
        left = line_height = 0
        for panel in section.panels:
            if left + panel.width > GRID_COLUMNS:
                top, left, line_height = top + line_height, 0, 0
            number += 1
            yield _panel(number, panel, {"x": left, "y": top, "w": panel.width, "h": panel.height})
            left, line_height = left + panel.width, max(line_height, panel.height)
        top += line_height


def _panel(number: int, panel: Panel, place: Mapping[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "gridPos": dict(place),
        "targets": [_target(index, query, panel) for index, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "options": _OPTIONS[panel.kind],
        **({"transformations": _TABLE_COLUMNS} if panel.kind == "table" else {}),
    }


def _target(index: int, query: PanelQuery, panel: Panel) -> dict[str, Any]:
    is_table = panel.kind == "table"
    return {
        "refId": chr(ord("A") + index),
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "instant": is_table,
        "range": not is_table,
        "format": {"table": "table", "heatmap": "heatmap"}.get(panel.kind, "time_series"),
    }


def _field(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": GREEN, "value": None}]
    steps += [
        {"color": color, "value": value}
        for color, value in ((YELLOW, panel.thresholds.warning), (RED, panel.thresholds.critical))
        if value is not None
    ]
    field: dict[str, Any] = {
        "unit": panel.unit,
        "min": None if panel.can_be_negative else 0,
        "color": {"mode": "thresholds" if panel.kind in {"stat", "bargauge"} else "palette-classic"},
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if panel.kind == "timeseries":
        field["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 20 if panel.is_stacked else 5,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if panel.is_stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "line" if len(steps) > 1 else "off"},
        }
    return field


_REDUCE = {"calcs": ["lastNotNull"], "fields": "", "values": False}
_OPTIONS: dict[Kind, dict[str, Any]] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "reduceOptions": _REDUCE,
        "colorMode": "background",
        "graphMode": "area",
        "justifyMode": "auto",
        "textMode": "auto",
    },
    "bargauge": {"reduceOptions": _REDUCE, "orientation": "horizontal", "displayMode": "basic", "showUnfilled": True},
    "table": {"showHeader": True, "cellHeight": "sm", "footer": {"show": False, "reducer": ["sum"], "fields": ""}},
    "heatmap": {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "fill": "dark-orange"},
        "legend": {"show": True},
        "tooltip": {"mode": "single", "showColorScale": False, "yHistogram": False},
        "yAxis": {"axisPlacement": "left", "unit": "s"},
    },
}
_TABLE_COLUMNS = [
    {"id": "merge", "options": {}},
    {"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": {}, "indexByName": {}}},
]
