"""A data directory names its owner, before anything in it is changed."""

import json
from pathlib import Path

import pytest

from tidemill.app.data_directory import FILE, FORMAT, DataDirectory
from tidemill.model.errors import InvalidConfig


def test_a_directory_keeps_its_id(tmp_path: Path) -> None:
    first = DataDirectory(tmp_path, 3)
    first.belong("cluster-a")
    again = DataDirectory(tmp_path, 3)
    assert again.id == first.id
    again.belong("cluster-a")
    assert sorted(path.name for path in tmp_path.iterdir()) == [FILE]


def test_a_directory_of_another_broker_cluster_or_format_is_rejected(tmp_path: Path) -> None:
    DataDirectory(tmp_path, 1).belong("cluster-a")
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(InvalidConfig, match="belongs to broker 1; start with --node-id 1"):
        DataDirectory(tmp_path, 2)
    with pytest.raises(InvalidConfig, match="belongs to cluster cluster-a"):
        DataDirectory(tmp_path, 1).belong("cluster-b")
    assert (tmp_path / FILE).read_bytes() == before
    (tmp_path / FILE).write_text(json.dumps({**json.loads(before), "format": FORMAT + 1}))
    with pytest.raises(InvalidConfig, match="start the version that wrote it"):
        DataDirectory(tmp_path, 1)
    (tmp_path / FILE).write_text("{")
    with pytest.raises(InvalidConfig, match="cannot be read"):
        DataDirectory(tmp_path, 1)
