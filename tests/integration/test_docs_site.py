"""The documentation site builds without a warning, and its generated pages are complete."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.support.doc_pages import ROOT

import tidemill
from tidemill.testing import Broker

BUILD_S = 150


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it: a broken link is an error."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=BUILD_S,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_the_site_has_a_search_index_of_all_sections(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    sections = {entry["location"].split("/")[0] for entry in index["docs"]}
    assert {"start", "guides", "concepts", "reference", "decisions"} <= sections


def test_the_python_reference_has_every_public_name(site: Path) -> None:
    page = (site / "reference" / "python" / "index.html").read_text(encoding="utf-8")
    names = [f"tidemill.{name}" for name in tidemill.__all__ if name != "__version__"]
    assert [name for name in names if f'id="{name}"' not in page] == []
    assert 'id="tidemill.Timeline.schedule"' in page
    assert 'id="tidemill.testing.Broker.kill"' in page


def test_every_decision_is_in_the_table() -> None:
    folder = ROOT / "docs" / "decisions"
    table = (folder / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in folder.glob("0*.md") if f"({page.name})" not in table] == []


def test_every_metric_of_a_running_broker_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.MULTILINE))
    with Broker() as broker, tidemill.Timeline(broker.grpc, "metered") as timeline:
        timeline.create()
        with urllib.request.urlopen(f"{broker.http}/metrics", timeout=30) as answer:
            found = dict(re.findall(r"^# TYPE (tidemill_\w+) (\w+)$", answer.read().decode(), re.MULTILINE))
    assert found.items() <= listed.items()
