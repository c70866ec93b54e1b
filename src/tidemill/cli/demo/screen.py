"""Displays the demo: a live table on a terminal, plain lines in a pipe, nothing with --json until the end."""

import sys
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Protocol

from tidemill.cli.demo.reminders import Lateness
from tidemill.cli.output import say, writes_unicode

if TYPE_CHECKING:
    from rich.table import Table

LINE_EVERY_S = 3.0
REDRAWS_PER_S = 4
BAR_WIDTH = 40
ITEMS_SHOWN = 7


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of the demo at one time."""

    seconds: float
    orders_written: int
    orders_per_s: float
    orders_in_topic: int
    lag: int | None
    reminders_scheduled: int
    reminders_delivered: int
    reminders_early: int
    reminders_lateness: Lateness | None
    spark: str
    spark_reason: str = ""
    batches: int = 0
    rows: int = 0
    batch_ms: int = 0
    orders_aggregated: int = 0
    revenue_by_item: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """The state as JSON."""
        return asdict(self)


class Screen(Protocol):
    """Displays snapshots."""

    def note(self, text: str) -> None:
        """Print one permanent line."""

    def show(self, snapshot: Snapshot) -> None:
        """Display the newest state. Called a few times per second."""

    def close(self) -> None:
        """End the display."""


class Silence:
    """For --json: prints only the document at the end. Remarks go to standard error."""

    def note(self, text: str) -> None:
        """Print one permanent line."""
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def show(self, snapshot: Snapshot) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class PlainLines:
    """For pipes: prints a line every few seconds."""

    def __init__(self) -> None:
        self._last_s = time.monotonic()

    def note(self, text: str) -> None:
        """Print one permanent line."""
        say(text)
        sys.stdout.flush()

    def show(self, snapshot: Snapshot) -> None:
        """Print a line when the interval has passed."""
        if time.monotonic() - self._last_s >= LINE_EVERY_S:
            self._last_s = time.monotonic()
            self.note(line(snapshot))

    def close(self) -> None:
        """Nothing."""


class LiveTable:
    """For terminals: a table that is redrawn in place."""

    def __init__(self) -> None:
        from rich.live import Live

        self._live = Live(refresh_per_second=REDRAWS_PER_S, transient=True)
        self._live.start()

    def note(self, text: str) -> None:
        """Print one permanent line above the table."""
        self._live.console.print(text, markup=False, highlight=False)

    def show(self, snapshot: Snapshot) -> None:
        """Draw the table."""
        self._live.update(table(snapshot))

    def close(self) -> None:
        """Remove the table and restore the terminal."""
        self._live.stop()


def screen(*, as_json: bool) -> Screen:
    """The display for this output."""
    if as_json:
        return Silence()
    return LiveTable() if sys.stdout.isatty() else PlainLines()


def line(snapshot: Snapshot) -> str:
    """A snapshot as one line."""
    parts = [
        f"{snapshot.seconds:5.1f} s",
        f"orders {snapshot.orders_written:,} ({snapshot.orders_per_s:,.0f}/s)",
        f"reminders {snapshot.reminders_delivered:,} {_late(snapshot)}",
        f"spark {_spark(snapshot)}",
    ]
    return "  ".join(parts)


def table(snapshot: Snapshot) -> "Table":
    """A snapshot as a table with bars."""
    from rich import box
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    shown = Table(box=box.SIMPLE_HEAD, title=f"tidemill demo, {snapshot.seconds:.0f} s", header_style="bold")
    shown.add_column("part")
    shown.add_column("state", min_width=BAR_WIDTH)
    shown.add_row("orders", f"{snapshot.orders_written:,} written, {snapshot.orders_per_s:,.0f}/s")
    shown.add_row("reminders", f"{snapshot.reminders_delivered:,} delivered, {_late(snapshot)}")
    shown.add_row("spark", _spark(snapshot))
    if snapshot.orders_aggregated:
        total = max(snapshot.orders_in_topic, 1)
        done = min(snapshot.orders_aggregated, total)
        shown.add_row("aggregated", f"{done:,} of {total:,} orders, {done / total:.0%}")
        shown.add_row("", ProgressBar(total, done, BAR_WIDTH))
        shown.add_section()
    best = max(snapshot.revenue_by_item.values(), default=1.0)
    for item, revenue in list(snapshot.revenue_by_item.items())[:ITEMS_SHOWN]:
        bar = ("█" if writes_unicode() else "#") * round(BAR_WIDTH * revenue / best / 2)
        shown.add_row(item, f"[cyan]{bar.ljust(BAR_WIDTH // 2)}[/] {revenue:>12,.2f}")
    shown.caption = "Ctrl-C stops everything"
    return shown


def summary(snapshot: Snapshot, *, drained: bool) -> str:
    """The result in a few lines."""
    lines = [f"orders     {snapshot.orders_written:,} written in {snapshot.seconds:.1f} s"]
    if snapshot.batches or snapshot.orders_aggregated:
        whole = "equal" if drained else "up to the last committed batch"
        lines.append(
            f"revenue    {snapshot.orders_aggregated:,} of {snapshot.orders_in_topic:,} orders aggregated in "
            f"{snapshot.batches:,} micro-batches ({whole})"
        )
    else:
        lines.append(f"revenue    spark {_spark(snapshot)}")
    waiting = snapshot.reminders_scheduled - snapshot.reminders_delivered
    lines.append(
        f"reminders  {snapshot.reminders_delivered:,} delivered, {max(waiting, 0):,} not due yet, {_late(snapshot)}"
    )
    return "\n".join(lines)


def _late(snapshot: Snapshot) -> str:
    early = f"{snapshot.reminders_early or 'none'} early"
    late = snapshot.reminders_lateness
    return early if late is None else f"{early}, late p50 {late.p50_ms:.1f} ms p99 {late.p99_ms:.1f} ms"


def _spark(snapshot: Snapshot) -> str:
    if not snapshot.batches:
        return f"{snapshot.spark}{': ' if snapshot.spark_reason else ''}{snapshot.spark_reason}"
    lag = "unknown" if snapshot.lag is None else f"{snapshot.lag:,}"
    return (
        f"{snapshot.spark}, {snapshot.batches:,} batches, {snapshot.rows:,} rows, "
        f"last {snapshot.batch_ms / 1_000:.1f} s, lag {lag}"
    )
