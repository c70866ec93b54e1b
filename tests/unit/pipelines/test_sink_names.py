"""What makes a repeated micro-batch the same one: the name of the sink, and the ids of messages without one."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tidemill.pipelines.errors import PipelineError, WrongOption
from tidemill.pipelines.spark.checkpoint import sink_of
from tidemill.pipelines.spark.timeline import to_messages


def row(
    body: str | None, due_ms: int | None = 1500, key: str | None = None, given: str | None = None
) -> dict[str, Any]:
    raw = {"body": body, "key": key}
    return {
        "id": given,
        "due_ms": due_ms,
        **{name: None if text is None else text.encode() for name, text in raw.items()},
    }


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
def test_a_checkpoint_that_cannot_be_found_is_told(location: str | None) -> None:
    with pytest.raises(WrongOption, match="checkpointLocation") as caught:
        sink_of(location)
    assert "\n" not in str(caught.value)


def test_messages_have_the_same_ids_whatever_the_order() -> None:
    rows = [row("a"), row("a"), row("a", due_ms=1501), row("a", key="k"), row("b"), row("ab"), row("", key="ab")]
    first = [message.id for message in to_messages(rows, "q/7")]
    assert len(set(first)) == len(rows)
    random.shuffle(rows)
    assert {message.id for message in to_messages(rows, "q/7")} == set(first)
    assert not {message.id for message in to_messages(rows, "q/8")} & set(first)


def test_messages_keep_what_the_rows_give() -> None:
    [message] = to_messages([row("body", key="k", given="mine")], "q/7")
    assert (message.id, message.body, message.key, message.due) == ("mine", b"body", b"k", 1.5)


@pytest.mark.parametrize(("broken", "line"), [(row(None), "no body"), (row("a", due_ms=None), "no due time")])
def test_a_row_that_is_no_message(broken: dict[str, Any], line: str) -> None:
    with pytest.raises(PipelineError, match=f"a row for the timeline has {line}"):
        list(to_messages([broken], "q/7"))
