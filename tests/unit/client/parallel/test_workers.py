"""Workers: what a handler returns or raises is reported, and a stop leaves nothing half done."""

import asyncio
import threading

import pytest

from tidemill.client.parallel.options import Halted
from tidemill.client.parallel.record import ParallelRecord
from tidemill.client.parallel.work import Ordering
from tidemill.client.parallel.work_queue import WorkQueue
from tidemill.client.parallel.workers import TaskWorkers, ThreadWorkers, call
from tidemill.model.topics import TopicPartition

PLACE = TopicPartition("orders", 0)
WAIT_S = 30.0


class Heard:
    """What the workers reported."""

    def __init__(self, queue: WorkQueue) -> None:
        self._queue = queue
        self.succeeded_offsets: list[int] = []
        self.errors: list[BaseException] = []
        self.any = threading.Semaphore(0)

    def succeeded(self, record: ParallelRecord, handler_s: float) -> None:
        assert handler_s >= 0
        self.succeeded_offsets.append(record.offset)
        self._queue.finished(record, handler_s)
        self.any.release()

    def failed(self, record: ParallelRecord, error: BaseException) -> None:
        self.errors.append(error)
        self.any.release()


def records(count: int) -> list[ParallelRecord]:
    return [ParallelRecord("orders", 0, offset, None, b"", (), 0) for offset in range(count)]


def queue_with(count: int) -> WorkQueue:
    queue = WorkQueue(Ordering.UNORDERED, "partition")
    queue.assign(PLACE)
    queue.put(records(count))
    return queue


def test_tasks_handle_all_records_and_no_more_than_the_count_at_once() -> None:
    queue = queue_with(6)
    heard, running, most = Heard(queue), 0, 0

    async def handler(record: ParallelRecord) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        if record.offset == 3:
            raise ValueError("three")

    workers = TaskWorkers(queue, handler, 2, heard)
    workers.start()
    queue.put([ParallelRecord("orders", 0, 6, None, b"", (), 0)])
    assert all(heard.any.acquire(timeout=WAIT_S) for _ in range(7))
    workers.stop(wait=True)
    assert (sorted(heard.succeeded_offsets), [str(error) for error in heard.errors]) == ([0, 1, 2, 4, 5, 6], ["three"])
    assert most == 2


def test_a_stop_lets_cancelled_tasks_clean_up_and_reports_nothing_of_them() -> None:
    queue = queue_with(2)
    heard, begun, cleaned = Heard(queue), threading.Semaphore(0), []

    async def handler(record: ParallelRecord) -> None:
        begun.release()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(record.offset * 0.02)  # the first that is done does not end the others
            cleaned.append(record.offset)

    workers = TaskWorkers(queue, handler, 2, heard)
    workers.start()
    queue.put([ParallelRecord("orders", 0, 2, None, b"", (), 0)])
    assert begun.acquire(timeout=WAIT_S)
    assert begun.acquire(timeout=WAIT_S)
    queue.close()
    workers.stop(wait=True)
    assert sorted(cleaned) == [0, 1]
    assert (heard.succeeded_offsets, heard.errors) == ([], [])
    assert not workers._thread.is_alive()


def test_a_stop_without_tasks_ends_the_thread() -> None:
    queue = queue_with(0)
    workers = TaskWorkers(queue, asyncio.sleep, 1, Heard(queue))  # type: ignore[arg-type]  # it is never called
    workers.start()
    queue.close()
    workers.stop(wait=True)
    assert not workers._thread.is_alive()


@pytest.mark.parametrize("wait", [True, False])
def test_a_thread_that_is_left_behind_reports_no_failure(wait: bool) -> None:
    queue = queue_with(1)
    heard, begun, go = Heard(queue), threading.Event(), threading.Event()

    def handler(record: ParallelRecord) -> None:
        begun.set()
        go.wait(WAIT_S)
        raise ValueError("late")

    workers = ThreadWorkers(queue, handler, 1, heard)
    workers.start()
    assert begun.wait(WAIT_S)
    queue.close()
    if wait:
        go.set()
    workers.stop(wait=wait)
    go.set()
    for thread in workers._threads:
        thread.join(WAIT_S)
    assert [str(error) for error in heard.errors] == (["late"] if wait else [])


def test_a_handler_that_returns_a_coroutine_has_done_nothing() -> None:
    async def work() -> None: ...

    [record] = records(1)
    with pytest.raises(Halted, match="async def"):
        call(lambda _: work(), record)  # the coroutine is closed: Python would warn of one that was never awaited
    call(lambda _: "any answer", record)
