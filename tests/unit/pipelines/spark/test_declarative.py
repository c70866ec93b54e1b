"""Pipelines that the declarative runner cannot run are rejected."""

from pathlib import Path

import pytest

from tidemill.cli.main import main
from tidemill.pipelines.sink.registry import sink_types
from tidemill.pipelines.spark.declarative import check_declarative
from tidemill.pipelines.spec.core.spec import WrongSpec
from tidemill.pipelines.spec.example import write_example
from tidemill.pipelines.spec.loading import load


def test_a_target_that_a_declarative_pipeline_cannot_write_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_example(tmp_path / "shop", "127.0.0.1:1")
    with pytest.raises(WrongSpec, match=r"sinks\.revenue is of kind topic in mode update; the declarative runner"):
        check_declarative(load(tmp_path / "shop", sink_types()))
    assert main(["pipeline", "run", str(tmp_path / "shop"), "--runner", "quick"]) == 2
    assert "there is no runner quick; use one of streaming, declarative" in capsys.readouterr().err
