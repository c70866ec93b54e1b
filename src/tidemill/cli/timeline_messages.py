"""The message commands of timelines: schedule, cancel, move, list, count and histogram."""

import math
import shutil
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.connection import Client
from tidemill.cli.errors import WrongUse
from tidemill.cli.options import Json
from tidemill.cli.output import remark, say, show, show_document, show_json, writes_unicode
from tidemill.cli.timeline_documents import future_view, message_page, timeline_page
from tidemill.cli.timeline_options import (
    DEFAULT_ADDRESS,
    Address,
    At,
    Count,
    Cron,
    Every,
    From,
    Group,
    In,
    Missed,
    Name,
    Status,
    To,
    Until,
    Zone,
    due_s,
    now_ms,
    recurrence_of,
    row_of,
    shown_time,
    time_s,
    timeline,
)

if TYPE_CHECKING:
    from tidemill.client.timelines import Bar

Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of messages.")]
MESSAGE_COLUMNS = ("id", "due", "status", "attempts", "key", "holder", "body")
TIMELINE_COLUMNS = ("timeline", "state", "consumers", "lease_ms")
HISTOGRAM_AHEAD_S = 3_600
BAR_COLUMNS_MIN = 10
BAR_COLUMNS_TAKEN = 40


def schedule(
    name: Name,
    body: Annotated[
        str | None, typer.Argument(help="Body of the message. Default: one message per line of standard input.")
    ] = None,
    after: In = None,
    at: At = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of the message.")] = None,
    message_id: Annotated[
        str | None, typer.Option("--id", help="Id of the message. Scheduling the same id again has no effect.")
    ] = None,
    cron: Cron = None,
    every: Every = None,
    zone: Zone = None,
    missed: Missed = None,
    until: Until = None,
    times: Count = None,
    group: Group = "",
    address: Address = DEFAULT_ADDRESS,
    client: Client = None,
    as_json: Json = False,
) -> None:
    """Schedule a message on a timeline and print its id.

    With --cron or --every it is due again after each completion; --in or --at is then the time before which it does not
    begin. Cancelling its id ends it.

    Example: tidemill schedule reminders --in 5s --key user-7 'tea is ready'

    Example: tidemill schedule reports --cron '0 9 * * 1-5' --zone Europe/Berlin --id daily 'write the report'
    """
    from tidemill.client.timelines import Message

    rule = recurrence_of(cron, every, zone, missed, until, times)
    may_be_now = rule is not None and after is None and at is None
    due = None if may_be_now else due_s(after, at)  # reports a wrong time before the user types messages
    bodies = [body.encode()] if body is not None else _typed()
    due = None if may_be_now else due_s(after, at)
    if message_id is not None and len(bodies) != 1:
        raise WrongUse(f"--id names one message; there are {len(bodies)}")
    key_bytes = None if key is None else key.encode()
    with timeline(address, client, name, group=group) as opened:
        ids = opened.schedule([Message(one, due, message_id, key_bytes, rule) for one in bodies])
    existing = [one for one in ids if one.exists_already]
    if as_json:
        show_json({"ids": ids, "existing": [{"id": one, "due": shown_time(one.due)} for one in existing]})
        return
    for one in ids:
        say(one)
    if rule is not None and not existing:
        remark(f"first due {shown_time(ids[0].due)}" if ids else "nothing was scheduled")
    wanted = None if due is None else shown_time(datetime.fromtimestamp(due, UTC))
    for one in existing:
        if shown_time(one.due) == wanted:
            continue  # scheduled before with the same due time
        change = f"to change the time: tidemill timeline move {name} {one}"
        if rule is not None:
            change = f"to change the recurrence, cancel it first: tidemill timeline cancel {name} {one}"
        remark(f"{one} already exists, due {shown_time(one.due)}; nothing changed; {change}")


def _typed() -> list[bytes]:
    if sys.stdin.isatty():
        remark("one message per line; Ctrl-D stops")
    return [line.rstrip(b"\n") for line in sys.stdin.buffer]


def cancel(
    name: Name,
    ids: Ids,
    group: Group = "",
    address: Address = DEFAULT_ADDRESS,
    client: Client = None,
    as_json: Json = False,
) -> None:
    """Cancel messages that no consumer holds.

    Example: tidemill timeline cancel reminders xmas
    """
    with timeline(address, client, name, group=group) as opened:
        opened.cancel(ids)
    if as_json:
        show_json({"timeline": name, "cancelled": ids})
    else:
        remark(f"cancelled {len(ids)} message{'s' if len(ids) != 1 else ''}")


def move(
    name: Name,
    ids: Ids,
    after: In = None,
    at: At = None,
    group: Group = "",
    address: Address = DEFAULT_ADDRESS,
    client: Client = None,
    as_json: Json = False,
) -> None:
    """Change the due time of messages.

    Example: tidemill timeline move reminders xmas --at 2026-12-25T09:00:00Z
    """
    due = due_s(after, at)
    with timeline(address, client, name, group=group) as opened:
        opened.move(ids, due)
    if as_json:
        show_json({"timeline": name, "moved": ids, "due": shown_time(datetime.fromtimestamp(due, UTC))})
    else:
        remark(f"moved {len(ids)} message{'s' if len(ids) != 1 else ''}")


def list_(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[TIMELINE]", help="Timeline whose messages to list. Default: list all timelines."),
    ] = None,
    status: Status = None,
    start: From = None,
    end: To = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1_000, help="Most messages to list.")] = 50,
    address: Address = DEFAULT_ADDRESS,
    client: Client = None,
    as_json: Json = False,
) -> None:
    """List the messages of a timeline by due time, or all timelines.

    Example: tidemill timeline list reminders --status waiting
    """
    with timeline(address, client, name or "") as opened:
        if name is not None:
            found = opened.messages(status, time_s(start), time_s(end), limit=limit)
            if as_json:
                show_document(message_page(name, found, limit))
                return
            rows = [row_of(one) for one in found]
            columns = (*MESSAGE_COLUMNS, "repeats") if any(one.recurrence for one in found) else MESSAGE_COLUMNS
            show(rows, columns, as_json=False, empty=f"{name} has no such messages")
            return
        page = timeline_page(opened.timelines())
    if as_json:
        show_document(page)
        return
    rows = [{column: getattr(one, column) for column in TIMELINE_COLUMNS} for one in page.timelines]
    hint = "there are no timelines yet; create one with: tidemill timeline create reminders"
    show(rows, TIMELINE_COLUMNS, as_json=False, empty=hint)


def count(
    name: Name,
    status: Status = None,
    start: From = None,
    end: To = None,
    address: Address = DEFAULT_ADDRESS,
    client: Client = None,
    as_json: Json = False,
) -> None:
    """Count the messages of a timeline.

    Example: tidemill timeline count reminders --status leased
    """
    with timeline(address, client, name) as opened:
        counted = opened.count(status, time_s(start), time_s(end))
    if as_json:
        show_json({"timeline": name, "count": counted})
    else:
        say(str(counted))


def histogram(
    name: Name,
    start: From = None,
    end: To = None,
    buckets: Annotated[int, typer.Option("--buckets", "-n", min=1, max=1_000, help="Number of bars.")] = 20,
    status: Status = None,
    address: Address = DEFAULT_ADDRESS,
    client: Client = None,
    as_json: Json = False,
) -> None:
    """Show as bars how many messages become due when. Default: the next hour.

    Example: tidemill timeline histogram reminders --from now --to +1d --buckets 24
    """
    first_s = time_s(start) if start is not None else now_ms() / 1_000
    last_s = time_s(end) if end is not None else (first_s or 0) + HISTOGRAM_AHEAD_S
    if first_s is None or last_s is None or last_s <= first_s:
        raise WrongUse("--to must be after --from")
    with timeline(address, client, name) as opened:
        bars = opened.histogram(first_s, last_s, buckets, status=status)
        total = sum(bar.count for bar in bars)
        elsewhere = 0 if total else opened.count(status)
    if as_json:
        show_document(future_view(bars, math.ceil(last_s * 1_000)))
        return
    for line in bar_lines(bars, shutil.get_terminal_size().columns, unicode=writes_unicode()):
        say(line)
    remark(f"{total:,} message{'s' if total != 1 else ''}")
    if elsewhere:
        remark(f"{elsewhere:,} at other times; look further with --to +7d, or back with --from")


def bar_lines(bars: "list[Bar]", columns: int, *, unicode: bool = True) -> list[str]:
    """One line for each bar: its start, the bar (in eighths of a character with Unicode) and its count."""
    width = max(BAR_COLUMNS_MIN, columns - BAR_COLUMNS_TAKEN)
    largest = max((bar.count for bar in bars), default=0) or 1
    lines = []
    for bar in bars:
        eighths = -(-bar.count * width * 8 // largest)
        fine = "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]
        drawn = fine if unicode else "#" * -(-eighths // 8)
        lines.append(f"{shown_time(bar.start)}  {drawn}{' ' if drawn else ''}{bar.count:,}")
    return lines
