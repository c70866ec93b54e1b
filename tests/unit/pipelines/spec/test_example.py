"""The example is a valid pipeline."""

from pathlib import Path

import pytest

from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.sink.registry import sink_types
from tidemill.pipelines.spec.example import write_example
from tidemill.pipelines.spec.folder import pipelines_in
from tidemill.pipelines.spec.loading import load


def test_the_example_is_right_and_is_found(tmp_path: Path) -> None:
    write_example(tmp_path / "shop", "127.0.0.1:1234")
    folder = load(tmp_path / "shop", sink_types())
    assert folder.spec.broker == "127.0.0.1:1234"
    assert [(step.transformation.name, step.reads) for step in folder.steps] == [
        ("priced", ("orders",)),
        ("revenue", ("priced",)),
    ]
    assert pipelines_in(tmp_path) == pipelines_in(tmp_path / "shop") == [tmp_path / "shop"]
    with pytest.raises(PipelineError, match="is not empty"):
        write_example(tmp_path / "shop", "127.0.0.1:1234")
