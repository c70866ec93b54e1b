"""Workers whose handler runs in a separate process, for work that needs more than one core.

The processes are spawned, because a fork would copy the threads and locks of the Kafka client. They ignore Ctrl-C and
SIGTERM, which a terminal sends to the whole process group: the consumer handles them and drains. They end with their
parent, however that ends. The handler's return value stays in the process. An error that cannot be pickled is sent as
its text.
"""

import os
import pickle
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context, parent_process

from tidemill.client.parallel.options import Halted, InvalidOption
from tidemill.client.parallel.record import ParallelRecord
from tidemill.client.parallel.work_queue import WorkQueue
from tidemill.client.parallel.workers import Handler, Outcomes, ThreadWorkers, call


class HandlerFailed(RuntimeError):
    """The handler raised an error that cannot be pickled. The message is its repr."""


class ProcessWorkers(ThreadWorkers):
    """Threads that each wait for a process to handle a record."""

    def __init__(self, queue: WorkQueue, handler: Handler, count: int, outcomes: Outcomes) -> None:
        _check_portable(handler)
        self._pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_prepare)
        super().__init__(queue, partial(_hand_over, self._pool, handler), count, outcomes)

    def stop(self, *, wait: bool) -> None:
        """See Workers."""
        super().stop(wait=wait)
        processes = dict(self._pool._processes or {})  # noqa: SLF001 -- no public way to kill them before Python 3.14
        self._pool.shutdown(wait=wait, cancel_futures=True)
        if not wait:
            for process in processes.values():
                process.kill()


def _check_portable(handler: Handler) -> None:
    try:
        pickle.dumps(handler)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InvalidOption(
            f"executor='process' cannot send the handler to a process; use a function of a module: {error}"
        ) from None


def _hand_over(pool: ProcessPoolExecutor, handler: Handler, record: ParallelRecord) -> None:
    try:
        pool.submit(_handle, handler, record).result()
    except BrokenProcessPool as error:
        raise Halted(
            "a worker process died; if none could start, add to the program: if __name__ == '__main__'"
        ) from error


def _prepare() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _handle(handler: Handler, record: ParallelRecord) -> None:
    try:
        call(handler, record)
    except Exception as error:  # noqa: BLE001 -- a handler may raise anything
        raise _portable(error) from None


def _portable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 -- pickled one line above
    except Exception:  # noqa: BLE001 -- the pickling code of an error may raise anything
        return HandlerFailed(repr(error))
    return error
