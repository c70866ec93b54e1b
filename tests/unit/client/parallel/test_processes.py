"""Handlers that run in other processes."""

import pytest

from tidemill.client.parallel import processes
from tidemill.client.parallel.options import InvalidOption
from tidemill.client.parallel.processes import ProcessWorkers, _end_with_parent
from tidemill.client.parallel.work import Ordering
from tidemill.client.parallel.work_queue import WorkQueue


def test_a_handler_that_cannot_be_sent_is_refused() -> None:
    queue = WorkQueue(Ordering.KEY, "partition")
    with pytest.raises(InvalidOption, match="cannot send the handler to a process"):
        ProcessWorkers(queue, lambda _: None, 1, None)  # type: ignore[arg-type]  # refused before it is used


def test_a_process_without_a_parent_does_not_end() -> None:
    _end_with_parent()


def test_a_process_ends_after_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[object] = []

    class Parent:
        def join(self) -> None:
            steps.append("the parent has ended")

    monkeypatch.setattr(processes, "parent_process", Parent)
    monkeypatch.setattr("os._exit", steps.append)
    _end_with_parent()
    assert steps == ["the parent has ended", 1]
