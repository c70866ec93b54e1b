"""The front page: addresses, topics and timelines. One document without scripts and styles."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from tidemill.servers.http.stylesheet import PATH as STYLE_PATH

TOKEN_FIELD = "token"  # noqa: S105 -- the name of a field
"""The field of a form that has its token against forged requests."""
ROWS_SHOWN_MAX = 500
"""The most rows of a table; the others are counted."""
KILO = 1024
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class BrokerFacts(NamedTuple):
    """The state of the broker, for visitors who may see it."""

    facts: Mapping[str, str]
    health: Mapping[str, Any]
    status: Mapping[str, Any]


class Visitor(NamedTuple):
    """The user who sees the page. `form_token` is None for one who cannot log out, such as one with a certificate."""

    name: str
    form_token: str | None = None


def size_text(size: int) -> str:
    """Return a size such as `3.4 MiB`."""
    value = float(size)
    for unit in UNITS[:-1]:
        if value < KILO:
            return f"{value:.0f} {unit}" if unit == UNITS[0] else f"{value:.1f} {unit}"
        value /= KILO
    return f"{value:.1f} {UNITS[-1]}"


def front_page(
    broker: BrokerFacts | None,
    topics: Sequence[Mapping[str, Any]],
    timelines: Sequence[Mapping[str, Any]],
    *,
    topics_left: int = 0,
    visitor: Visitor | None = None,
) -> str:
    """Return the whole document. `topics_left` counts the topics that are not shown.

    `broker` is None for a visitor who may not see the state of the broker.
    """
    return f"""{page_head("Tidemill")}{_visitor(visitor)}
{_broker(broker)}
<h2>Topics</h2><div class="sheet">{_topics(topics, topics_left)}</div>
<h2>Timelines</h2><div class="sheet">{_timelines(timelines)}</div>
<h2>Endpoints</h2><p><a href="/metrics">/metrics</a> &middot; <a href="/health">/health</a> &middot;
<a href="/health/live">/health/live</a> &middot;
<a href="/health/ready">/health/ready</a> &middot; <a href="/api/status">/api/status</a> &middot;
<a href="/api/topics">/api/topics</a> &middot; <a href="/api/timelines">/api/timelines</a></p>
</main></body></html>
"""


def page_head(title: str) -> str:
    """Return the beginning of a page, up to its first element."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escape(title)}</title><link rel="stylesheet" href="{STYLE_PATH}"></head><body><main>"""


def _visitor(visitor: Visitor | None) -> str:
    if visitor is None:
        return ""
    button = ""
    if visitor.form_token is not None:
        button = (
            '<form method="post" action="/logout">'
            f'<input type="hidden" name="{TOKEN_FIELD}" value="{escape(visitor.form_token)}">'
            "<button>Log out</button></form>"
        )
    return f'<div class="user">{escape(visitor.name)}{button}</div>'


def _broker(broker: BrokerFacts | None) -> str:
    if broker is None:
        return "<h1><b>Tidemill</b></h1><p>The state of the broker is shown to users who may DESCRIBE the cluster.</p>"
    state = "; ".join(_troubles(broker.health)) or "All parts are healthy."
    return f"""<h1><b>Tidemill</b> {escape(broker.facts["version"])}</h1><p>{escape(state)}</p>
<div class="tiles">{_tiles(broker.status)}</div>
<h2>Broker</h2><div class="sheet"><table>{_facts(broker.facts)}</table></div>"""


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
    """Build a table of cells that are HTML already: a name first, text last, numbers between."""
    if not rows:
        return f"<table><tr><td>{hint}</td></tr></table>"
    kinds = ["", *['class="n"'] * (len(names) - 2), 'class="w"']
    head = "".join(f"<th {kind}>{name}</th>" for kind, name in zip(kinds, names, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td {kind}>{cell}</td>' for kind, cell in zip(kinds, row, strict=True))}</tr>" for row in rows
    )
    more = f'<tr><td colspan="{len(names)}">and {left:,} more</td></tr>' if left > 0 else ""
    return f"<table><tr>{head}</tr>{body}{more}</table>"
