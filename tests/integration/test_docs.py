"""Everything that the documentation shows is run: commands print what the page says, programs end well."""

import importlib.util
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.support.doc_pages import (
    ROOT,
    blocks,
    difference,
    followed_pages,
    links,
    names,
    pages,
    relative_links,
    same,
    without_spark,
)
from tests.support.doc_reader import follow_page

from tidemill.model.metric_labels import USED_NAMES
from tidemill.testing import Broker

PAGES = pages()
RUN = {"console", "python"}
HERE = [page for page in without_spark() if page not in followed_pages() and RUN & {each.kind for each in blocks(page)}]


@pytest.mark.parametrize("page", HERE, ids=names(HERE))
def test_a_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    with Broker() as broker:
        follow_page(page, tmp_path, broker)


def test_every_start_page_and_guide_is_in_the_navigation() -> None:
    folders = [*(ROOT / "docs" / "start").glob("*.md"), *(ROOT / "docs" / "guides").glob("*.md")]
    assert set(folders) == set(followed_pages()) - {ROOT / "README.md"}


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_links_lead_somewhere(page: Path) -> None:
    assert [str(target) for target in links(page) if not target.exists()] == []


def test_the_front_page_renders_on_a_package_index() -> None:
    readme = ROOT / "README.md"
    assert relative_links(readme) == []
    assert len(readme.read_text(encoding="utf-8").splitlines()) < 150


def test_the_map_of_the_source_is_complete_and_true() -> None:
    """Every path that the architecture names is there, and every package is on it."""
    source = ROOT / "src" / "tidemill"
    named = set(re.findall(r"`([a-z_/]+/[a-z_]*(?:\.py)?)`", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")))
    assert [path for path in sorted(named) if not ((source / path).exists() or (ROOT / path).exists())] == ["core/"]
    found = (*source.glob("*/__init__.py"), *source.glob("*/*/__init__.py"))
    packages = {str(each.parent.relative_to(source)) + "/" for each in found}
    folders = {"/".join(path.split("/")[:depth]) + "/" for path in named for depth in (1, 2)}
    assert packages - folders == set()


def test_the_layers_are_those_of_the_import_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    block = re.search(r"```\n(__main__\n.*?)```", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    shown = [re.split(r" {2,}| \(", line)[0] for line in block[1].splitlines()]
    assert shown == contracts[0]["layers"]


def test_the_reference_is_what_the_tables_say() -> None:
    generate = _generator()
    stale = [name for name, make in generate.PAGES.items() if (generate.FOLDER / name).read_text() != make()]
    assert stale == [], "run: python docs/reference/generate.py"


def test_labels_of_settings_cannot_have_the_name_of_a_label_of_a_metric() -> None:
    generate = _generator()
    labels = {label for each in generate.broker_metrics(generate.SOURCE) for label in each.labels}
    assert labels - USED_NAMES == set()


def _generator() -> Any:
    path = ROOT / "docs" / "reference" / "generate.py"
    spec = importlib.util.spec_from_file_location("generate_reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("shown", "out", "err", "fine"),
    [
        (["a", "b"], ["a"], ["b"], True),
        (["b", "a"], ["a"], ["b"], True),
        (["a", "b"], ["b", "a"], [], False),
        (["a"], ["a", "b"], [], False),
        (["a", "..."], ["a", "b", "c"], [], True),
        (["...", "c"], ["a", "b", "c"], [], True),
        (["...", "c"], ["a", "c", "d"], [], False),
        (["1.5 s  late"], ["22.75 s late"], [], True),
        (["2 s late"], ["3 s late"], [], False),
        (["at ... o'clock"], ["at four o'clock"], [], True),
    ],
)
def test_the_comparison_can_fail(shown: list[str], out: list[str], err: list[str], fine: bool) -> None:
    assert (difference(shown, out, err) is None) == fine


def test_times_and_ids_are_whatever_they_are() -> None:
    assert same("2026-11-16T17:12:06.599Z x", "2027-01-02T03:04:05.006Z  x")
    assert not same("2026-11-16T17:12:06.599Z x", "2027-01-02T03:04:05.006Z y")
