"""The name of a sink makes a repeated micro-batch the same one."""

import json
from pathlib import Path

import pytest

from tidemill.pipelines.errors import WrongOption
from tidemill.pipelines.spark.checkpoint import sink_of


def test_a_sink_is_named_after_its_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "check point"
    folder.mkdir()
    (folder / "metadata").write_text(json.dumps({"id": "q-1"}), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for location in (str(folder), folder.as_uri(), "check point", "check point/"):
        assert sink_of(location) == "tidemill-q-1"


def test_a_checkpoint_that_only_spark_can_read_gives_its_address() -> None:
    name = sink_of("hdfs://name-node/checkpoints/a")
    assert name == sink_of("hdfs://name-node/checkpoints/a/")
    assert name != sink_of("hdfs://name-node/checkpoints/b")


@pytest.mark.parametrize("location", [None, "", "/there/is/no/such/folder"])
def test_a_missing_checkpoint_is_reported(location: str | None) -> None:
    with pytest.raises(WrongOption, match="checkpointLocation") as caught:
        sink_of(location)
    assert "\n" not in str(caught.value)
