"""The front page: what runs where, the topics and the timelines. One file, no scripts, readable in light and dark."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

ROWS_SHOWN_MAX = 500
"""Of a table; the others are counted."""
KILO = 1024
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")

STYLE = """
:root { color-scheme: light dark; --ink: #16212b; --soft: #5b6b79; --line: #dfe5ea; --paper: #f6f8fa; --card: #fff;
  --tide: #0b7285; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #93a4b3; --line: #27323c; --paper: #0f151b;
  --card: #161e26; --tide: #3bc9db; --bad: #ff8a80; } }
* { box-sizing: border-box } body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 64rem; margin: 0 auto; padding: 2rem 1.25rem 4rem }
h1 { margin: 0; font-size: 1.6rem; letter-spacing: -.01em } h1 b { color: var(--tide) }
h2 { margin: 2.2rem 0 .7rem; font-size: 1.05rem } p { color: var(--soft); margin: .2rem 0 1.4rem }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .7rem }
.tile, .sheet { background: var(--card); border: 1px solid var(--line); border-radius: .6rem }
.tile { padding: .8rem 1rem } .tile span { display: block; color: var(--soft); font-size: .8rem }
.tile strong { font-size: 1.35rem; font-variant-numeric: tabular-nums } .bad strong { color: var(--bad) }
.sheet { overflow-x: auto } table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .5rem 1rem; border-bottom: 1px solid var(--line); white-space: nowrap }
tr:last-child td { border-bottom: 0 } th { color: var(--soft); font-weight: 500; font-size: .8rem }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums } td.w { white-space: normal; color: var(--soft) }
code { font: .9em ui-monospace, monospace } a { color: var(--tide) }
"""


def size_text(size: int) -> str:
    """`3.4 MiB`."""
    value = float(size)
    for unit in UNITS[:-1]:
        if value < KILO:
            return f"{value:.0f} {unit}" if unit == UNITS[0] else f"{value:.1f} {unit}"
        value /= KILO
    return f"{value:.1f} {UNITS[-1]}"


def front_page(
    facts: Mapping[str, str],
    health: Mapping[str, Any],
    status: Mapping[str, Any],
    topics: Sequence[Mapping[str, Any]],
    timelines: Sequence[Mapping[str, Any]],
    *,
    topics_left: int = 0,
) -> str:
    """The whole document; `topics_left` are those that are not among the topics."""
    state = "; ".join(_troubles(health)) or "Everything is in order."
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Tidemill {escape(facts["node"])}</title><style>{STYLE}</style></head><body><main>
<h1><b>Tidemill</b> {escape(facts["version"])}</h1><p>{escape(state)}</p>
<div class="tiles">{_tiles(status)}</div>
<h2>What runs where</h2><div class="sheet"><table>{_facts(facts)}</table></div>
<h2>Topics</h2><div class="sheet">{_topics(topics, topics_left)}</div>
<h2>Timelines</h2><div class="sheet">{_timelines(timelines)}</div>
<h2>For programs</h2><p><a href="/metrics">/metrics</a> &middot; <a href="/health">/health</a> &middot;
<a href="/health/live">/health/live</a> &middot;
<a href="/health/ready">/health/ready</a> &middot; <a href="/api/status">/api/status</a> &middot;
<a href="/api/topics">/api/topics</a> &middot; <a href="/api/timelines">/api/timelines</a></p>
</main></body></html>
"""


def _troubles(health: Mapping[str, Any]) -> list[str]:
    parts = [(name, health[name]) for name in ("streams", "timelines", "tasks") if health[name] is not None]
    return [
        f"{name} {part['state']}: {', '.join(part['reasons']) or 'no reason given'}"
        for name, part in parts
        if part["state"] != "healthy"
    ]


def _tiles(status: Mapping[str, Any]) -> str:
    shown = [
        ("topics", f"{status['topics']:,}"),
        ("partitions", f"{status['partitions']:,}"),
        ("connections", f"{sum(status['connections'].values()):,}"),
        ("records written", f"{status['records_in']:,}"),
        ("log size", size_text(status["log_bytes"])),
        ("requests", f"{status['requests']:,}"),
    ]
    tiles = [f'<div class="tile"><span>{name}</span><strong>{value}</strong></div>' for name, value in shown]
    if status["failed_partitions"]:
        tiles.append(f'<div class="tile bad"><span>failed</span><strong>{status["failed_partitions"]:,}</strong></div>')
    return "".join(tiles)


def _facts(facts: Mapping[str, str]) -> str:
    return "".join(
        f"<tr><th>{escape(name)}</th><td><code>{escape(value)}</code></td></tr>" for name, value in facts.items()
    )


def _topics(topics: Sequence[Mapping[str, Any]], left: int) -> str:
    rows = [
        (
            f"<code>{escape(topic['name'])}</code>",
            f"{topic['partitions']:,}",
            f"{topic['records']:,}",
            size_text(topic["bytes"]),
            escape(", ".join(f"{name}={value}" for name, value in sorted(topic["overrides"].items()))),
        )
        for topic in topics
    ]
    hint = "No topics yet. Try <code>tidemill topic create orders --partitions 3</code>."
    return _table(("name", "partitions", "records", "size", "settings"), rows, hint, left)


def _timelines(timelines: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (
            f"<code>{escape(timeline['name'])}</code>",
            f"{timeline['consumers']:,}",
            f"{timeline['messages'].get('scheduled', 0):,}",
            f"{timeline['messages'].get('completed', 0):,}",
            escape(timeline["state"]),
        )
        for timeline in timelines[:ROWS_SHOWN_MAX]
    ]
    hint = "No timelines yet. Try <code>tidemill timeline create reminders</code>."
    left = len(timelines) - len(rows)
    return _table(("name", "consumers", "scheduled", "completed", "state"), rows, hint, left)


def _table(names: Sequence[str], rows: Sequence[Sequence[str]], hint: str, left: int) -> str:
    """The first column is a name, the last is words, those between are numbers; cells are HTML already."""
    if not rows:
        return f"<table><tr><td>{hint}</td></tr></table>"
    kinds = ["", *['class="n"'] * (len(names) - 2), 'class="w"']
    head = "".join(f"<th {kind}>{name}</th>" for kind, name in zip(kinds, names, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td {kind}>{cell}</td>' for kind, cell in zip(kinds, row, strict=True))}</tr>" for row in rows
    )
    more = f'<tr><td colspan="{len(names)}">and {left:,} more</td></tr>' if left > 0 else ""
    return f"<table><tr>{head}</tr>{body}{more}</table>"
