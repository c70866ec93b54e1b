"""A store that counts its calls: under which kind, and which errors are failures."""

import asyncio
from typing import Any

import pytest

from tidemill.timelines.core.errors import StoreUnavailable, TimelineExists, UnknownTimeline
from tidemill.timelines.core.lease import Cancel, Command, Complete, Extend, Move, MoveToTimeline, Release
from tidemill.timelines.core.message import MessageStatus, NewMessage, Selection
from tidemill.timelines.core.timeline import Create, Delete, MakeReady, Purge
from tidemill.timelines.measured_store import READ_ALL, MeasuredTimelineStore, kind_of_commands
from tidemill.timelines.memory import MemoryTimelineStore

NOW = 1_000_000


def counts(store: MeasuredTimelineStore) -> dict[str, int]:
    return {" ".join(kind): duration.count for kind, duration in store.queries.durations.items()}


async def test_each_call_is_counted_under_its_kind() -> None:
    store = MeasuredTimelineStore(MemoryTimelineStore(), "memory")
    await store.govern(Create("line"))
    await store.govern(MakeReady("line"))
    await store.catalogue()
    await store.schedule("line", [NewMessage("a", NOW, b"", 1)])
    await store.find("line", now_ms=NOW, limit=1)
    await store.find("line", Selection(ids=("a",)), now_ms=NOW, limit=1)
    for status in MessageStatus:
        await store.tally("line", Selection(status=status), now_ms=NOW)
    await store.backlogs(now_ms=NOW)
    await store.span("line")
    await store.acquire("line", [], now_ms=NOW)
    await store.settle("line", [Cancel("a")], now_ms=NOW)
    await store.govern(Delete("line"))
    await store.govern(Purge("line", 10))
    assert counts(store) == {
        "create lookup all": 2,
        "update lookup all": 2,
        "read range all": 4,
        "read lookup all": 1,
        "read range waiting": 1,
        "read range available": 1,
        "read range processing": 1,
        "update lookup available": 1,
        "delete lookup waiting": 1,
        "delete range all": 1,
    }
    assert not store.queries.errors


@pytest.mark.parametrize(
    ("commands", "kind"),
    [
        ([Complete(1, 2)], "delete lookup processing"),
        ([Complete(1, 2), Release(2, 2, NOW)], "update lookup processing"),
        ([Extend(1, 2, NOW)], "update lookup processing"),
        ([Cancel("a")], "delete lookup waiting"),
        ([Move("a", NOW)], "update lookup waiting"),
        ([Complete(1, 2), Cancel("a")], "delete lookup all"),
        ([MoveToTimeline(1, 2, "dead", "id")], "update lookup available"),
    ],
)
def test_the_kind_of_commands(commands: list[Command], kind: str) -> None:
    assert " ".join(kind_of_commands(commands)) == kind


class FailingStore(MemoryTimelineStore):
    """Ends each call to `catalogue` with this error."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    async def catalogue(self) -> Any:
        raise self._error


@pytest.mark.parametrize("error", [StoreUnavailable("no answer"), ValueError("unexpected")])
async def test_a_store_that_does_not_answer_has_failed(error: Exception) -> None:
    store = MeasuredTimelineStore(FailingStore(error), "memory")
    with pytest.raises(type(error)):
        await store.catalogue()
    assert store.queries.errors == {(READ_ALL, type(error).__name__): 1}
    assert counts(store) == {"read range all": 1}


@pytest.mark.parametrize("error", [UnknownTimeline(), TimelineExists(), asyncio.CancelledError()])
async def test_a_rejection_or_a_caller_that_gives_up_is_no_failure(error: BaseException) -> None:
    store = MeasuredTimelineStore(FailingStore(error), "memory")
    with pytest.raises(type(error)):
        await store.catalogue()
    assert not store.queries.errors
    assert counts(store) == {"read range all": 1}
