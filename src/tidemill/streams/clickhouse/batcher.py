"""Batches concurrent requests: requests that arrive during a round are sent together in the next one.

So opening many partitions at the same time, or saving their state, costs the server only a few statements.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from tidemill.model.errors import KafkaError, KafkaStorageError

Q = TypeVar("Q")
A = TypeVar("A")


class Gathering(Generic[Q, A]):
    """Collects requests into rounds, one round at a time. `answer` returns a result or an error for each request."""

    def __init__(self, answer: Callable[[Sequence[Q]], Awaitable[Sequence[A | KafkaError]]]) -> None:
        self._answer = answer
        self._waiting: list[tuple[Q, asyncio.Future[A]]] = []
        self._task: asyncio.Task[None] | None = None

    async def ask(self, question: Q) -> A:
        """Return the result of this request, or raise its error."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[A] = loop.create_future()
        self._waiting.append((question, done))
        if self._task is None:
            self._task = loop.create_task(self._run())
        return await done

    async def _run(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                for (_, done), answer in zip(waiting, await self._round([q for q, _ in waiting]), strict=True):
                    if done.done():
                        continue
                    if isinstance(answer, KafkaError):
                        done.set_exception(answer)
                    else:
                        done.set_result(answer)
        finally:
            self._task = None

    async def _round(self, questions: Sequence[Q]) -> Sequence[A | KafkaError]:
        try:
            return await self._answer(questions)
        except KafkaError as error:
            return [error] * len(questions)
        except Exception as error:  # noqa: BLE001 - every waiting caller must get the error, whatever it is
            return [KafkaStorageError(repr(error))] * len(questions)
