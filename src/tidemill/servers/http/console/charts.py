"""Charts as SVG. They are made on the server, need no script and no inline style, and read the theme from classes.

A drawing has the width of its place and a fixed height: positions from left to right are percentages, so the text keeps
its size. Each chart has a name, one sentence that describes it, and its values as a table; scripts show the row of the
table under the pointer. Names and links come from callers and are escaped.
"""

from collections.abc import Iterator, Sequence
from math import ceil, floor, log10
from typing import NamedTuple

from markupsafe import Markup

from tidemill.servers.http.console.quantities import KILO, TEXTS, time_text

HEIGHT, TOP, BOTTOM = 168, 18, 146
"""The drawing, and the places of the largest value and of zero in it."""
WIDTH = 1_000
"""The width of a line in its own units: the browser stretches it."""
SPARK_WIDTH, SPARK_HEIGHT = 96, 24
COLOURS = 6
STEPS = 3
"""Lines of the grid above zero."""
TICKS = 5
"""The most labels under a chart."""
SHORT_TICKS, SHORT_CHARS = 16, 4
"""The most labels under bars if none is longer."""
TICK_CHARS = 14
EDGE = 0.1
"""A label so near to an edge begins or ends there."""
NARROW_CHARS = 8
MINUTE_MS = 60_000
DAY_MS = 86_400_000


class ChartSeries(NamedTuple):
    """One line of a chart. None is a time without a value."""

    label: str
    values: Sequence[float | None]


class ChartBar(NamedTuple):
    """One bar, with a value for each name of its chart, stacked. With a link it can be opened."""

    label: str
    values: Sequence[float]
    link: str = ""
    tick: str = ""
    """What is under the bar, if that is not the whole label."""


def line_chart(
    title: str, times_ms: Sequence[int], series: Sequence[ChartSeries], unit: str = "count", *, is_area: bool = True
) -> Markup:
    """Values over time. All series have a value for each time; the distance of times is the same everywhere."""
    shown = TEXTS[unit]
    top = _ceiling([value for each in series for value in each.values if value is not None], unit)
    lines = Markup("").join(
        _line(each.values, top, number, is_area=is_area) for number, each in enumerate(series, start=1)
    )
    plot = Markup(
        '<svg y="{}" width="100%" height="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">{}</svg>'
    ).format(TOP, BOTTOM - TOP, WIDTH, BOTTOM - TOP, lines)
    rows = [(_clock(time_ms, times_ms), [each.values[at] for each in series]) for at, time_ms in enumerate(times_ms)]
    drawing = Markup('<svg class="chart" role="img" height="{}"><title>{}</title><desc>{}</desc>{}{}{}</svg>').format(
        HEIGHT, title, _summary(series, unit), _grid(top, unit), plot, _time_labels(times_ms)
    )
    last = [(each.label, _last(each.values)) for each in series]
    legend = Markup("").join(
        Markup(
            '<li><svg width="12" height="3" aria-hidden="true"><path class="key s{}" d="M0 1.5H12"/></svg>{} '
            "<strong>{}</strong></li>"
        ).format(_colour(number), label, shown(value))
        for number, (label, value) in enumerate(last, start=1)
    )
    return _figure(drawing, legend, title, ["Time (UTC)", *(each.label for each in series)], rows, unit)


def bar_chart(title: str, names: Sequence[str], bars: Sequence[ChartBar], unit: str = "count") -> Markup:
    """Bars next to each other, each with the values of `names` on top of each other. Bars with a link can be opened."""
    top = _ceiling([sum(each.values) for each in bars], unit)
    width = 100 / max(1, len(bars))
    drawn = Markup("").join(_bar(each, at, width, top, names, unit) for at, each in enumerate(bars))
    labels = Markup("").join(
        Markup('<text x="{:.2f}%" y="{}" text-anchor="{}">{}</text>').format(
            (at + 0.5) * width, HEIGHT - 4, _anchor(at, len(bars)), bars[at].tick or bars[at].label
        )
        for at in _bar_ticks([each.label for each in bars])
    )
    role = "group" if any(each.link for each in bars) else "img"
    drawing = Markup('<svg class="chart" role="{}" aria-label="{}" height="{}">{}{}{}</svg>').format(
        role, title, HEIGHT, drawn, _grid(top, unit), labels
    )
    legend = Markup("")
    if len(names) > 1:
        legend = Markup("").join(
            Markup(
                '<li><svg width="10" height="10" aria-hidden="true"><rect class="bar s{}" width="10" height="10"/>'
                "</svg>{}</li>"
            ).format(_colour(number), name)
            for number, name in enumerate(names, start=1)
        )
    return _figure(drawing, legend, title, ["", *names], [(each.label, each.values) for each in bars], unit)


def result_line_chart(
    title: str, axis_name: str, labels: Sequence[str], places: Sequence[float], series: ChartSeries
) -> Markup:
    """One column of a query's result. The places of its labels are from 0 to 1, from left to right."""
    top = _ceiling([value for value in series.values if value is not None], "count")
    height = BOTTOM - TOP
    line = Markup('<path class="line s1" d="{}"/>').format(_path(series.values, top, WIDTH, height, places))
    plot = Markup(
        '<svg y="{}" width="100%" height="{}" viewBox="0 0 {} {}" preserveAspectRatio="none">{}</svg>'
    ).format(TOP, height, WIDTH, height, line)
    ticks = Markup("").join(
        Markup('<text x="{:.2f}%" y="{}" text-anchor="{}">{}</text>').format(
            100 * places[at], HEIGHT - 4, _anchor_at(places[at]), label
        )
        for at, label in _spread(labels, places)
    )
    drawing = Markup(
        '<svg class="chart" role="img" height="{}" data-places="{}"><title>{}</title><desc>{}</desc>{}{}{}</svg>'
    ).format(
        *(HEIGHT, " ".join(f"{place:.4f}" for place in places), title, _summary([series], "count")),
        *(_grid(top, "count"), plot, ticks),
    )
    rows = [(label, [value]) for label, value in zip(labels, series.values, strict=True)]
    return _figure(drawing, Markup(""), title, [axis_name, series.label], rows, "count")


def tick_text(label: str) -> str:
    """A label that fits under a chart. Of a time, the end says more than the date."""
    if len(label) <= TICK_CHARS:
        return label
    is_time = label[:4].isdecimal() and label[4] == label[7] == "-"
    return label[5:16] if is_time else f"{label[: TICK_CHARS - 1]}…"


def sparkline(label: str, values: Sequence[float | None], unit: str = "count") -> Markup:
    """A small line without axes, for a row of a table."""
    known = [value for value in values if value is not None]
    if not known:
        return Markup('<span class="soft">-</span>')
    top = max(*known, 1e-9)
    path = _path(values, top, SPARK_WIDTH, SPARK_HEIGHT - 2)
    name = f"{label}: now {TEXTS[unit](known[-1])}, at most {TEXTS[unit](max(known))}"
    return Markup(
        '<svg class="spark" role="img" viewBox="0 -1 {} {}" preserveAspectRatio="none"><title>{}</title>'
        '<path class="line s1" d="{}"/></svg>'
    ).format(SPARK_WIDTH, SPARK_HEIGHT, name, path)


def meter(label: str, share: float, tone: str = "") -> Markup:
    """A bar that is filled up to a share from 0 to 1. The tone is warn or bad, or empty."""
    filled = min(max(share, 0.0), 1.0)
    return Markup(
        '<svg class="meter {}" role="img" height="6"><title>{}</title><rect class="track" width="100%" height="6"/>'
        '<rect class="fill" width="{:.1f}%" height="6" rx="3"/></svg>'
    ).format(tone, label, filled * 100)


def _figure(
    drawing: Markup,
    legend: Markup,
    title: str,
    names: Sequence[str],
    rows: Sequence[tuple[str, Sequence[float | None]]],
    unit: str,
) -> Markup:
    shown = TEXTS[unit]
    head = Markup("").join(
        Markup('<th scope="col"{}>{}</th>').format(_number_class(at), name) for at, name in enumerate(names)
    )
    body = Markup("").join(
        Markup('<tr><th scope="row">{}</th>{}</tr>').format(
            label,
            Markup("").join(
                Markup('<td class="n">{}</td>').format("-" if value is None else shown(value)) for value in values
            ),
        )
        for label, values in rows
    )
    return Markup(
        '<figure class="plot">{}{}<details id="{}"><summary>Show as table</summary>'
        '<div class="scroll" tabindex="0" role="region" aria-label="{}"><table><thead><tr>{}</tr></thead>'
        "<tbody>{}</tbody></table></div></details></figure>"
    ).format(
        Markup('<ul class="legend">{}</ul>').format(legend) if legend else "",
        drawing,
        f"values of {title}".replace(" ", "-"),
        f"Values of {title}",
        head,
        body,
    )


def _number_class(at: int) -> Markup:
    return Markup(' class="n"') if at else Markup("")


def _colour(number: int) -> int:
    return (number - 1) % COLOURS + 1


def _line(values: Sequence[float | None], top: float, number: int, *, is_area: bool) -> Markup:
    height = BOTTOM - TOP
    drawn = Markup('<path class="line s{}" d="{}"/>').format(_colour(number), _path(values, top, WIDTH, height))
    if not is_area or number > 1:
        return drawn
    area = " ".join(
        f"M{run[0][0]:.1f} {height}L{' '.join(f'{x:.1f} {y:.1f}' for x, y in run)} {run[-1][0]:.1f} {height}Z"
        for run in _runs(values, top, WIDTH, height)
    )
    return Markup('<path class="area s{}" d="{}"/>').format(_colour(number), area) + drawn


def _path(
    values: Sequence[float | None], top: float, width: int, height: int, places: Sequence[float] | None = None
) -> str:
    """The runs of known values. A single value is a short line, because a point has no length."""
    return " ".join(
        f"M{' '.join(f'{x:.1f} {y:.1f}' for x, y in run)}" if len(run) > 1 else f"M{run[0][0]:.1f} {run[0][1]:.1f}h2"
        for run in _runs(values, top, width, height, places)
    )


def _runs(
    values: Sequence[float | None], top: float, width: int, height: int, places: Sequence[float] | None = None
) -> Iterator[list[tuple[float, float]]]:
    step = width / max(1, len(values) - 1)
    run: list[tuple[float, float]] = []
    for at, value in enumerate(values):
        if value is not None:
            x = at * step if places is None else places[at] * width
            run.append((x, height * (1 - min(1.0, max(0.0, value / top)))))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _bar(bar: ChartBar, at: int, width: float, top: float, names: Sequence[str], unit: str) -> Markup:
    shown = TEXTS[unit]
    gap = width * 0.12
    under = float(BOTTOM)
    parts = []
    for number, value in enumerate(bar.values, start=1):
        height = (BOTTOM - TOP) * max(0.0, value) / top
        under -= height
        if height > 0:
            parts.append(
                Markup('<rect class="bar s{}" x="{:.3f}%" y="{:.2f}" width="{:.3f}%" height="{:.2f}"/>').format(
                    _colour(number), at * width + gap / 2, under, width - gap, max(height, 1.0)
                )
            )
    text = ", ".join(f"{shown(value)} {name}" for name, value in zip(names, bar.values, strict=True))
    zone = Markup('<rect class="zone" x="{:.3f}%" y="{}" width="{:.3f}%" height="{}"/>').format(
        at * width, TOP, width, BOTTOM - TOP
    )
    drawn = zone + Markup("").join(parts)
    name = f"{bar.label}: {text}"
    if bar.link:
        return Markup('<a href="{}" aria-label="{}"><title>{}</title>{}</a>').format(bar.link, name, name, drawn)
    return Markup("<g><title>{}</title>{}</g>").format(name, drawn)


def _grid(top: float, unit: str) -> Markup:
    lines = []
    for step in range(STEPS + 1):
        y = BOTTOM - (BOTTOM - TOP) * step / STEPS
        kind = "grid" if step else "axis"
        lines.append(Markup('<line class="{}" x1="0" x2="100%" y1="{:.1f}" y2="{:.1f}"/>').format(kind, y, y))
        if step:
            lines.append(
                Markup('<text class="y" x="0" y="{:.1f}">{}</text>').format(y - 4, TEXTS[unit](top * step / STEPS))
            )
    return Markup("").join(lines)


def _ceiling(values: Sequence[float], unit: str) -> float:
    """A round number that is not smaller than any value, and that `STEPS` divides into round numbers."""
    largest = max(values, default=0.0)
    if largest <= 0:
        return float(STEPS)
    step = largest / STEPS
    if unit.startswith("byte"):
        size = 1.0
        while step > KILO * size:
            size *= KILO
        return STEPS * next(size * each for each in (1, 2, 5, 10, 20, 50, 100, 200, 500, KILO) if size * each >= step)
    power = 10.0 ** floor(log10(step))
    return STEPS * next(power * each for each in (1, 2, 2.5, 5, 10) if power * each >= step * 0.999999)


def _ticks(count: int) -> list[int]:
    """The places of the labels under a chart of so many values."""
    if count <= TICKS:
        return list(range(count))
    return [round(each * (count - 1) / (TICKS - 1)) for each in range(TICKS)]


def _bar_ticks(labels: Sequence[str]) -> range:
    """The bars that have a label, at equal distances: more of them where all labels are short, such as numbers."""
    most = SHORT_TICKS if all(len(each) <= SHORT_CHARS for each in labels) else TICKS
    return range(0, len(labels), ceil(len(labels) / most) or 1)


def _anchor(at: int, count: int) -> str:
    """How a label is placed: those at the edges stay inside."""
    if count <= TICKS:
        return "middle"
    return "start" if at == 0 else "end" if at == count - 1 else "middle"


def _anchor_at(place: float) -> str:
    return "start" if place < EDGE else "end" if place > 1 - EDGE else "middle"


def _time_labels(times_ms: Sequence[int]) -> Markup:
    count = len(times_ms)
    return Markup("").join(
        Markup('<text x="{:.2f}%" y="{}" text-anchor="{}">{}</text>').format(
            100 * at / max(1, count - 1),
            HEIGHT - 4,
            "start" if at == 0 else "end" if at == count - 1 else "middle",
            _tick(times_ms[at], times_ms),
        )
        for at in _ticks(count)
    )


def _spread(labels: Sequence[str], places: Sequence[float]) -> Iterator[tuple[int, str]]:
    """Some labels that are far enough from each other, by the places of their rows."""
    shown = [tick_text(label) for label in labels]
    count = TICKS if max(map(len, shown)) <= NARROW_CHARS else TICKS // 2 + 1
    last = -1.0
    for number in range(count):
        at = min(range(len(places)), key=lambda each: abs(places[each] - number / (count - 1)))
        if places[at] - last >= 0.7 / (count - 1):
            last = places[at]
            yield at, shown[at]


def _clock(time_ms: int, times_ms: Sequence[int]) -> str:
    """The time of the day, with the date where a chart is longer than a day."""
    text = time_text(time_ms)
    return text[11:19] if times_ms[-1] - times_ms[0] < DAY_MS else text[5:16]


def _tick(time_ms: int, times_ms: Sequence[int]) -> str:
    """The same without seconds where the distance of the labels is minutes."""
    text, span_ms = _clock(time_ms, times_ms), times_ms[-1] - times_ms[0]
    return text[:5] if TICKS * MINUTE_MS <= span_ms < DAY_MS else text


def _last(values: Sequence[float | None]) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)


def _summary(series: Sequence[ChartSeries], unit: str) -> str:
    """What the chart shows, in words."""
    shown = TEXTS[unit]
    parts = []
    for each in series:
        known = [value for value in each.values if value is not None]
        text = (
            f"now {shown(known[-1])}, at least {shown(min(known))}, at most {shown(max(known))}"
            if known
            else "no values"
        )
        parts.append(f"{each.label}: {text}")
    return "; ".join(parts) or "no values"
