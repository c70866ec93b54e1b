"""Rows as messages of a timeline: a repeated row has the same id."""

import random
from typing import Any

import pytest

from tidemill.pipelines.errors import PipelineError
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
