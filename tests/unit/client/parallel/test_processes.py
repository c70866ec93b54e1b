"""Handlers that run in other processes."""

import operator
import threading

import pytest

from tidemill.client.parallel import processes
from tidemill.client.parallel.options import InvalidOption
from tidemill.client.parallel.processes import HandlerFailed, ProcessWorkers, _end_with_parent, _portable
from tidemill.client.parallel.record import ParallelRecord
from tidemill.client.parallel.work import Ordering
from tidemill.client.parallel.work_queue import WorkQueue
from tidemill.model.topics import TopicPartition

WAIT_S = 60.0


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


class Collected:
    """What the workers reported."""

    def __init__(self) -> None:
        self.results: list[int | BaseException] = []
        self.any = threading.Semaphore(0)

    def succeeded(self, record: ParallelRecord, handler_s: float) -> None:
        assert handler_s > 0
        self.results.append(record.offset)
        self.any.release()

    def failed(self, _record: ParallelRecord, error: BaseException) -> None:
        self.results.append(error)
        self.any.release()


def test_a_process_handles_records_reports_errors_and_ends_with_the_stop() -> None:
    queue, collected = WorkQueue(Ordering.UNORDERED, "partition"), Collected()
    queue.assign(TopicPartition("orders", 0))
    workers = ProcessWorkers(queue, operator.attrgetter("value.nothing"), 1, collected)
    assert not workers._pool._processes, "it starts with the first record"
    workers.start()
    queue.put([ParallelRecord("orders", 0, 7, None, b"", (), 0)])
    assert collected.any.acquire(timeout=WAIT_S)
    queue.close()
    processes = list(workers._pool._processes.values())
    workers.stop(wait=True)
    assert [each.exitcode for each in processes] == [0]
    [error] = collected.results
    assert str(error) == "'bytes' object has no attribute 'nothing'"
    with pytest.raises(RuntimeError, match="after shutdown"):
        workers._pool.submit(int)


def test_an_error_that_cannot_be_sent_is_sent_as_its_text() -> None:
    class LocalError(Exception):
        pass

    assert _portable(plain := ValueError("three")) is plain
    found = _portable(LocalError("four"))
    assert isinstance(found, HandlerFailed)
    assert str(found) == "LocalError('four')"
