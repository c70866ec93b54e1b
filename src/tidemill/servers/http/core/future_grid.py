"""The bars of a histogram over time: round widths, round edges, and the ranges that zooming in and out leads to."""

from typing import NamedTuple

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
YEAR_MS = 365 * DAY_MS
END_MS = 253_402_300_800_000
"""The year 10000: no message is due then or later."""
WIDTHS_MS = (
    *(1, 10, 100),
    *(each * SECOND_MS for each in (1, 2, 5, 10, 30)),
    *(each * MINUTE_MS for each in (1, 2, 5, 10, 30)),
    *(each * HOUR_MS for each in (1, 2, 6, 12)),
    *(each * DAY_MS for each in (1, 2, 7, 30, 90)),
    *(each * YEAR_MS for each in (1, 5, 20, 100, 200)),
)
BARS_WANTED = 48
ZOOM = 4


class FutureGrid(NamedTuple):
    """Bars of equal width, next to each other."""

    start_ms: int
    width_ms: int
    bars: int

    @property
    def end_ms(self) -> int:
        """The end of the last bar."""
        return min(END_MS, self.start_ms + self.bars * self.width_ms)

    def edges(self) -> list[tuple[int, int]]:
        """The start and the end of each bar."""
        starts = [self.start_ms + at * self.width_ms for at in range(self.bars)]
        return [(start, min(END_MS, start + self.width_ms)) for start in starts]


def future_grid(from_ms: int, to_ms: int, bars: int = BARS_WANTED) -> FutureGrid:
    """The bars that cover a range; at most one more than `bars`."""
    from_ms = min(max(0, from_ms), END_MS - 1)
    to_ms = min(max(from_ms + 1, to_ms), END_MS)
    least_ms = -(-(to_ms - from_ms) // bars)
    width_ms = next((each for each in WIDTHS_MS if each >= least_ms), WIDTHS_MS[-1])
    start_ms = from_ms // width_ms * width_ms
    return FutureGrid(start_ms, width_ms, -(-(to_ms - start_ms) // width_ms))


def zoomed_out(grid: FutureGrid) -> tuple[int, int]:
    """A range with the same middle that is several times as long."""
    length_ms = grid.end_ms - grid.start_ms
    more_ms = length_ms * (ZOOM - 1) // 2
    return max(0, grid.start_ms - more_ms), min(END_MS, grid.end_ms + more_ms)


def shifted(grid: FutureGrid, direction: int) -> tuple[int, int] | None:
    """The range before (-1) or after (1) this one; None where time begins or ends."""
    length_ms = grid.end_ms - grid.start_ms
    start_ms = max(0, grid.start_ms + direction * length_ms)
    end_ms = min(END_MS, start_ms + length_ms)
    return None if start_ms >= end_ms or (start_ms, end_ms) == (grid.start_ms, grid.end_ms) else (start_ms, end_ms)
