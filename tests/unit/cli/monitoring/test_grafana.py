"""Dashboards have the shape that Grafana imports."""

import re
from itertools import combinations
from typing import Any

import pytest

from tidemill.cli.monitoring.boards import BOARDS
from tidemill.cli.monitoring.grafana import GRID_COLUMNS, Board, Panel, PanelQuery, PanelRow, dashboard, queries_of

VARIABLE = re.compile(r"\$(\w+)")
BUILT_IN = {"__rate_interval", "datasource"}
EVERY = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)


def panels_of(board: Board) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = dashboard(board)["panels"]
    return found


@EVERY
def test_panels_have_places_of_their_own(board: Board) -> None:
    panels = panels_of(board)
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] + place["w"] <= GRID_COLUMNS for place in places)
    assert [pair for pair in combinations(places, 2) if overlap(*pair)] == []


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    are_apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
    above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    return not are_apart and not above


def test_the_places_can_overlap() -> None:
    assert overlap({"x": 0, "y": 0, "w": 2, "h": 2}, {"x": 1, "y": 1, "w": 2, "h": 2})


@EVERY
def test_every_panel_says_what_it_shows(board: Board) -> None:
    panels = [panel for panel in panels_of(board) if panel["type"] != "row"]
    assert all(panel["title"] and panel["description"].endswith(".") for panel in panels)
    assert all(panel["targets"] and panel["fieldConfig"]["defaults"]["unit"] for panel in panels)
    titles = [panel["title"] for panel in panels]
    assert len(titles) == len(set(titles))


@EVERY
def test_every_variable_is_defined_and_used(board: Board) -> None:
    defined = {variable.name for variable in board.variables}
    used = {name for expr in queries_of(board) for name in VARIABLE.findall(expr)} - BUILT_IN
    assert used == defined
    assert [each["name"] for each in dashboard(board)["templating"]["list"]] == ["datasource", *defined_in_order(board)]


def defined_in_order(board: Board) -> list[str]:
    return [variable.name for variable in board.variables]


def test_identifiers_of_dashboards_are_short_and_distinct() -> None:
    found = [dashboard(board)["uid"] for board in BOARDS]
    assert len(set(found)) == len(found)
    assert all(len(uid) <= 40 for uid in found)  # Grafana's limit


def test_panels_flow_into_lines() -> None:
    panels = [Panel(str(number), "", (PanelQuery("up"),), width=10, height=3) for number in range(3)]
    board = Board("b", "B", "", (), (PanelRow("one", panels), PanelRow("two", panels[:1])))
    places = [(each["gridPos"]["x"], each["gridPos"]["y"]) for each in panels_of(board)]
    assert places == [(0, 0), (0, 1), (10, 1), (0, 4), (0, 7), (0, 8)]
