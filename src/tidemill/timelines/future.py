"""Bounded counts of the messages of a timeline by due time, for people who look at it.

`Dispatcher.histogram` counts every message, however many there are. This one is asked again and again by open pages, so
its cost is bounded in each direction: the bars of one answer, the messages that are counted for one bar, one question
to the store at a time, and equal questions within `ANSWER_S` get the same answer.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from tidemill.model.timeline_errors import BadDueTime, BatchTooLarge
from tidemill.timelines.core.message import MessageStatus, Selection, bar_width_ms, check_due

FUTURE_BARS_MAX = 200
FUTURE_MESSAGES_MAX = 5_000_000
"""The most messages that one answer counts. SQLite counts a million in about 35 ms, PostgreSQL in about a second."""
ANSWER_S = 1.0
ANSWERS_MAX = 64


class FutureHistogram(NamedTuple):
    """The messages of a part of a timeline, by due time."""

    start_ms: int
    width_ms: int
    """The width of a bar. The last bar ends at the end that was asked for, also when that makes it shorter."""
    counts: tuple[int, ...]
    bar_max: int
    """A bar with this count has so many messages or more."""

    @property
    def is_exact(self) -> bool:
        """Whether every message is counted."""
        return max(self.counts) < self.bar_max


Tally = Callable[[str, Selection, int, int], Awaitable[list[int]]]
"""Counts in a store: timeline, selection, bars, and the most per bar."""


class FutureReader:
    """Answers questions about the future of a broker's timelines."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._turn = asyncio.Lock()
        self._answers: dict[tuple[str, Selection, int], tuple[float, FutureHistogram]] = {}

    async def histogram(self, name: str, selection: Selection, bars: int) -> FutureHistogram:
        """The selected messages by due time, at most `ANSWER_S` old."""
        _check(selection, bars)
        key = name, selection, bars
        async with self._turn:
            now_s = asyncio.get_running_loop().time()
            known = self._answers.get(key)
            if known is not None and now_s - known[0] < ANSWER_S:
                return known[1]
            bar_max = FUTURE_MESSAGES_MAX // bars
            counts = await self._tally(name, selection, bars, bar_max)
            found = FutureHistogram(selection.start_ms, bar_width_ms(selection, bars), tuple(counts), bar_max)
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            self._answers[key] = now_s, found
            return found

    def forget(self, name: str) -> None:
        """A person has changed messages of this timeline, and looks at it next."""
        self._answers = {key: known for key, known in self._answers.items() if key[0] != name}


def future_selection(start_ms: int, end_ms: int, status: MessageStatus | None) -> Selection:
    """The messages that are due between two times."""
    check_due(start_ms)
    check_due(end_ms - 1)
    return Selection(start_ms, end_ms, status)


def _check(selection: Selection, bars: int) -> None:
    if not 1 <= bars <= FUTURE_BARS_MAX:
        raise BatchTooLarge(f"the histogram can have 1 to {FUTURE_BARS_MAX} bars, not {bars}; choose fewer")
    if selection.start_ms >= selection.end_ms:
        raise BadDueTime("the histogram ends before it starts; the first time must be earlier than the second")
