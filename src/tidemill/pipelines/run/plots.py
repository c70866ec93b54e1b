"""Draws the plots of a report with matplotlib, without a display. It needs the extra `plots`."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.run.core.report import TrafficReport

INK, GRID, PAPER = "#1f2933", "#d9e2ec", "#ffffff"
COLOURS = ("#2f6f9f", "#e07a1f", "#3a9d5d", "#b0413e", "#7b5ea7", "#8a6d3b", "#d1608f", "#5f6c7b")
TOPICS_MAX = len(COLOURS)
"""The busiest topics have a line each; the others share one line."""
BARS_MAX = 20
SIZE_INCHES = (9.0, 5.6)
DPI = 130
BAR_INCHES = 0.42
MARGIN_INCHES = 0.12
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": GRID,
    "legend.frameon": False,
}


def draw(report: TrafficReport, folder: Path) -> list[Path]:
    """Write the plots. A plot without data is left out."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an extra, and slow to load
    except ImportError:
        raise PipelineError("plots need matplotlib; run: pip install 'tidemill[plots]', or give --no-plots") from None
    mpl.use("Agg")
    drawn = []
    with mpl.rc_context(STYLE):
        if report.traffic:
            drawn.append(_saved(_throughput(report), folder / "throughput.png"))
        if report.lags:
            drawn.append(_saved(_lag(report), folder / "lag.png"))
    return drawn


def _throughput(report: TrafficReport) -> Any:
    figure, (upper, lower) = _subplots(2, SIZE_INCHES, sharex=True)
    series, names = report.series(), [each.topic for each in report.topics]
    lines = [(name, [name]) for name in names[: TOPICS_MAX - 1]]
    if len(names) >= TOPICS_MAX:
        lines.append((f"{len(names) - TOPICS_MAX + 1} more", names[TOPICS_MAX - 1 :]))
    times = [datetime.fromtimestamp(at / 1000, UTC) for at in report.moments]
    for (label, topics), colour in zip(lines, COLOURS, strict=False):
        for which, axes in enumerate((upper, lower)):
            values = [
                sum(series[topic].get(at, (0, 0))[which] for topic in topics) / report.step_s for at in report.moments
            ]
            _line(axes, times, values, label, colour)
    upper.set_title("Records per second", pad=24)
    lower.set_title("Bytes per second")
    _count_axis(upper, _short)
    _count_axis(lower, lambda value: _short(value, " ") + "B")
    upper.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4, borderaxespad=0.2, handlelength=1.2)
    _time_axis(lower, times, report.step_s)
    return figure


def _line(axes: Any, times: Sequence[datetime], values: Sequence[float], label: str, colour: str) -> None:
    marker = "o" if len(times) < 3 else ""
    axes.plot(times, values, color=colour, linewidth=1.8, label=label, marker=marker, markersize=4)
    axes.fill_between(times, values, color=colour, alpha=0.10, linewidth=0)


def _lag(report: TrafficReport) -> Any:
    rows = report.groups()[:BARS_MAX][::-1]
    figure, (axes,) = _subplots(1, (SIZE_INCHES[0], 1.3 + BAR_INCHES * max(2, len(rows))))
    names = [f"{row['group']}  \N{MIDDLE DOT}  {row['topic']}" for row in rows]
    colours = [COLOURS[0] if row["lag"] else COLOURS[2] for row in rows]
    bars = axes.barh(names, [row["lag"] for row in rows], color=colours, height=0.62)
    labels = [f" {row['lag']:,}  ({_age(row['lag_s'])})" if row["lag"] else " up to date" for row in rows]
    axes.bar_label(bars, labels, padding=3, fontsize=9)
    axes.set_xlim(0, max(1, *(row["lag"] for row in rows)) * 1.25 if rows else 1)
    axes.set_title("Lag of consumer groups, in records (age of the oldest unread one)")
    axes.xaxis.set_major_formatter(lambda value, _: _short(value))
    axes.grid(visible=True, axis="x", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.spines["left"].set_visible(False)
    return figure


def _subplots(count: int, size: tuple[float, float], **more: Any) -> tuple[Any, Sequence[Any]]:
    from matplotlib import pyplot as plt  # noqa: PLC0415 - as above

    figure, axes = plt.subplots(count, 1, figsize=size, layout="constrained", facecolor=PAPER, squeeze=False, **more)
    figure.get_layout_engine().set(w_pad=MARGIN_INCHES, h_pad=MARGIN_INCHES)
    return figure, [row[0] for row in axes]


def _count_axis(axes: Any, formatted: Callable[[float], str]) -> None:
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: formatted(value))
    axes.grid(visible=True, axis="y", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)


def _time_axis(axes: Any, times: Sequence[datetime], step: int) -> None:
    from matplotlib import dates  # noqa: PLC0415 - as above

    locator = dates.AutoDateLocator(minticks=3, maxticks=9)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    axes.set_xlabel(f"UTC, {step} s a point")
    if len(times) > 1:
        axes.set_xlim(times[0], times[-1])


def _saved(figure: Any, path: Path) -> Path:
    from matplotlib import pyplot as plt  # noqa: PLC0415 - as above

    figure.savefig(path, dpi=DPI)
    plt.close(figure)
    return path


def _short(value: float, gap: str = "") -> str:
    """A number with a unit prefix: 1.2k for 1,200."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:g}{gap}{unit}"
    return f"{value:g}{gap}"


def _age(seconds: float) -> str:
    for limit, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * limit:
            return f"{seconds / limit:.0f} {unit}"
    return f"{seconds:.0f} s"
