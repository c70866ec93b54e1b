"""Pipelines that are read from disk, and one line for every file that is missing or wrong."""

from copy import deepcopy
from pathlib import Path

import pytest
import yaml
from tests.unit.pipelines.spec.sample_spec import GOOD, changed

from tidemill.pipelines.sink.registry import sink_types
from tidemill.pipelines.spec.core.spec import WrongSpec
from tidemill.pipelines.spec.loading import load


def test_a_column_with_the_name_of_a_view_makes_no_circle(tmp_path: Path) -> None:
    files = {
        "a": "select x.total, 1 as b from orders x, clicks as y where b > 0",
        "b": "select * from (select * from a) z join clicks on z.k = clicks.k",
    }
    spec = deepcopy(GOOD) | {"transformations": {name: {"file": f"{name}.sql"} for name in files}}
    spec["sinks"]["out"]["from"] = "b"
    (tmp_path / "pipeline.yml").write_text(yaml.safe_dump(spec), encoding="utf-8")
    for name, text in files.items():
        (tmp_path / f"{name}.sql").write_text(text, encoding="utf-8")
    assert [step.transformation.name for step in load(tmp_path, sink_types()).steps] == ["a", "b"]
    (tmp_path / "a.sql").write_text("select * from b", encoding="utf-8")
    with pytest.raises(WrongSpec, match="transformations read each other: "):
        load(tmp_path, sink_types())


def test_files_that_are_missing_or_wrong_are_named(tmp_path: Path) -> None:
    with pytest.raises(WrongSpec, match="create a pipeline with: tidemill pipeline init"):
        load(tmp_path, sink_types())
    (tmp_path / "pipeline.yml").write_text("a: [", encoding="utf-8")
    with pytest.raises(WrongSpec, match="is not valid YAML"):
        load(tmp_path, sink_types())
    (tmp_path / "pipeline.yml").write_text("sinks:\n  out: {}\n  more: {}\n  out: {}\n", encoding="utf-8")
    with pytest.raises(WrongSpec, match=r"the key out occurs twice .* line 4, column 3"):
        load(tmp_path, sink_types())
    (tmp_path / "pipeline.yml").write_text(yaml.safe_dump(GOOD), encoding="utf-8")
    with pytest.raises(WrongSpec, match=r"transformations\.revenue\.file: .* does not exist"):
        load(tmp_path, sink_types())
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "revenue.sql").write_bytes(b"SELECT '\xf6'")
    with pytest.raises(WrongSpec, match=r"revenue\.sql is not UTF-8 text"):
        load(tmp_path, sink_types())
    (tmp_path / "transformations" / "revenue.py").write_text("def revenue(ordes): ...", encoding="utf-8")
    python = changed("transformations.revenue.file", "transformations/revenue.py")
    (tmp_path / "pipeline.yml").write_text(yaml.safe_dump(python), encoding="utf-8")
    with pytest.raises(WrongSpec, match=r"revenue\(ordes\): view ordes does not exist; there are clicks, orders"):
        load(tmp_path, sink_types())
