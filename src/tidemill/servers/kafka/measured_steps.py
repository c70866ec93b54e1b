"""Measures how long one request holds the event loop: the time of each step of its handler, without its waits."""

from collections.abc import Awaitable, Callable, Generator
from time import perf_counter
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")


class Spender(Protocol):
    """A request that spends time of the broker."""

    spent_s: float


class MeasuredSteps(Generic[T]):
    """Awaits what it is given, and adds the time of its steps to `spent_s` of the request."""

    __slots__ = ("_inner", "_spender")

    def __init__(self, spender: Spender, inner: Awaitable[T]) -> None:
        self._spender = spender
        self._inner = inner

    def __await__(self) -> Generator[Any, Any, T]:
        steps: Any = self._inner.__await__()
        step: Callable[..., Any] = steps.__next__
        value: tuple[BaseException, ...] = ()
        while True:
            began = perf_counter()
            try:
                waits_for = step(*value)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self._spender.spent_s += perf_counter() - began
            try:
                yield waits_for
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:  # noqa: BLE001 -- a cancellation, or what the awaited future raised
                step, value = steps.throw, (error,)
            else:
                step, value = steps.__next__, ()


async def measured(spender: Spender, inner: Awaitable[T]) -> T:
    """The same as a coroutine, for a task."""
    return await MeasuredSteps(spender, inner)
