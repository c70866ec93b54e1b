"""The loop behind the synchronous classes: no caller is left waiting, whenever a thread closes it."""

import asyncio
import os
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tidemill.client.background import Background
from tidemill.client.kafka.errors import ClientError

PATIENCE_S = 30.0
CLOSED = ClientError("it is closed")


class Face:
    """What a user holds: it is closed, or forgotten."""

    def __init__(self) -> None:
        self.background = Background("test", CLOSED)
        self.end = self.background.ends_with(self, partial(asyncio.sleep, 0))


@pytest.fixture
def face() -> Iterator[Face]:
    opened = Face()
    yield opened
    opened.end()


def test_a_wait_gets_an_error_when_another_thread_closes(face: Face) -> None:
    begun = threading.Semaphore(0)

    async def begin() -> None:
        begun.release()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(8) as threads:
        waiting = [threads.submit(face.background.run, begin()) for _ in range(8)]
        assert all(begun.acquire(timeout=PATIENCE_S) for _ in waiting)
        face.end()
        for each in waiting:
            with pytest.raises(ClientError, match="it is closed"):
                each.result(PATIENCE_S)


def test_a_call_while_it_is_closed_gets_an_error() -> None:
    """Many come at once, each at another moment of the end."""
    for _ in range(20):
        face = Face()

        def call(opened: Face = face) -> int:
            for number in range(1_000_000):
                try:
                    opened.background.run(asyncio.sleep(0))
                except ClientError:
                    return number
            return -1

        with ThreadPoolExecutor(4) as threads:
            calls = [threads.submit(call) for _ in range(4)]
            face.end()
            assert all(each.result(PATIENCE_S) >= 0 for each in calls)
        with pytest.raises(ClientError, match="it is closed"):
            face.background.call_soon(print)


def test_a_forked_child_gets_an_error_and_can_end(face: Face) -> None:
    child = os.fork()
    if not child:
        try:
            face.background.run(asyncio.sleep(0))
        except ClientError as error:
            face.end()  # would wait for ever for a thread that only the parent has
            os._exit(7 if "forked" in str(error) else 1)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    face.background.run(asyncio.sleep(0))


def test_a_last_coroutine_that_starts_in_the_loop_thread_does_not_block(face: Face) -> None:
    """As when the garbage collector finds a generator there."""
    ended = threading.Event()

    async def last() -> None:
        ended.set()

    async def collect() -> None:
        face.background.run_last(last())

    face.background.run(collect())
    assert ended.wait(PATIENCE_S)
    face.end()
    face.background.run_last(last())  # nothing is left to do


def test_a_wait_for_itself_gives_an_error(face: Face) -> None:
    async def callback() -> None:
        face.background.run(asyncio.sleep(0))

    with pytest.raises(RuntimeError, match="must not wait"):
        face.background.run(callback())


def test_pickling_a_client_fails_with_the_reason(face: Face) -> None:
    with pytest.raises(TypeError, match="open one in each process"):
        pickle.dumps(face.background)
