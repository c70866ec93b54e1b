"""`tidemill sql`: runs SQL queries on a running broker."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tidemill.cli.connection import Client
from tidemill.cli.errors import WrongUse
from tidemill.cli.http_connection import HttpAddress, http_address, post
from tidemill.cli.options import local_folder
from tidemill.cli.output import remark, say, show, show_json

DEFAULT_HTTP = "127.0.0.1:8080"
TIMEOUT_S = 120.0
CELL_CHARS_MAX = 200

Http = Annotated[
    str,
    typer.Option(
        "--http", envvar="TIDEMILL_BOOTSTRAP_HTTP", help="HTTP address of the broker: host:port, or https://host:port."
    ),
]


def sql(
    question: Annotated[
        str | None, typer.Argument(metavar="[SELECT ...]", help="The query. Default: read from standard input.")
    ] = None,
    http: Http = DEFAULT_HTTP,
    client: Client = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as a JSON list.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header line.")] = False,
    parquet: Annotated[
        Path | None, typer.Option(metavar="FILE", parser=local_folder, help="Write a Parquet file.")
    ] = None,
    skip: Annotated[
        bool,
        typer.Option("--skip-unreadable", help="Skip batches that cannot be read. The broker logs them."),
    ] = False,
    tables: Annotated[bool, typer.Option("--tables", help="List the tables and their columns.")] = False,
    diagnose: Annotated[
        bool, typer.Option("--diagnose", help="Run a ready-made query by its NAME; without a name, list them.")
    ] = False,
    show_query: Annotated[
        bool, typer.Option("--show", help="With --diagnose NAME: print the query instead of running it.")
    ] = False,
    ddl: Annotated[
        bool,
        typer.Option("--ddl", help="Print the tables that a broker creates on the ClickHouse servers of a URL."),
    ] = False,
    minutes: Annotated[
        int | None, typer.Option("--minutes", metavar="N", help="With --diagnose NAME: how old a problem must be.")
    ] = None,
) -> None:
    """Query a running broker in SQL: records, groups, lag, timers.

    The tables are messages, partitions, consumer_groups, consumer_offsets, group_members, consumer_lag, group_activity,
    share_groups, topic_rates and timers; --tables lists their columns. The dialect is ClickHouse's. Only SELECT is
    allowed. A query cannot change anything or read files or other machines, and its time, memory and rows are limited
    (tidemill.sql.*). A user sees the topics, groups and timelines that its ACLs allow.

    Example: tidemill sql "SELECT topic, partition, count(), max(offset) FROM messages GROUP BY ALL"

    Find problems: tidemill sql --diagnose lag|stuck|skew|hot-partitions|rebalances

    Review tables: tidemill sql --ddl 'clickhouse://host1|host1b,host2/tidemill?cluster=main'
    """
    if (show_query or minutes is not None) and not (diagnose and question):
        raise WrongUse("--show and --minutes need --diagnose NAME; tidemill sql --diagnose lists the names")
    if sum([as_json, as_csv, parquet is not None]) > 1:
        raise WrongUse("choose one of --json, --csv and --parquet FILE")
    if tables:
        _show_tables(as_json=as_json)
        return
    if ddl:
        from tidemill.cli.sql_definitions import show_definitions

        show_definitions(question, as_json=as_json)
        return
    found = None
    if diagnose:
        from tidemill.cli import sql_diagnosis

        if question is None:
            sql_diagnosis.list_diagnoses(as_json=as_json)
            return
        found = sql_diagnosis.diagnosis_named(question)
        question = sql_diagnosis.query_of(found, minutes)
        if show_query:
            sql_diagnosis.show_query(found, question, as_json=as_json)
            return
    text = _query(question)
    address = http_address(http, client)
    if as_csv:
        sys.stdout.buffer.write(_ask(address, text, "csv", skip=skip))
    elif parquet is not None:
        answer = _ask(address, text, "parquet", skip=skip)
        parquet.write_bytes(answer)
        remark(f"wrote {parquet}: {len(answer):,} bytes")
    else:
        empty = "no rows" if found is None else f"{found.name}: no problem found"
        rows = _show(json.loads(_ask(address, text, "json", skip=skip)), as_json=as_json, empty=empty)
        if found is not None and rows and not as_json:
            remark(f"next step: {found.advice}")


def _query(given: str | None) -> str:
    text = given if given is not None else ("" if sys.stdin.isatty() else sys.stdin.read())
    if not text.strip():
        raise WrongUse('there is no query; try: tidemill sql "SELECT * FROM partitions", or tidemill sql --tables')
    return text


def _ask(address: HttpAddress, question: str, form: str, *, skip: bool) -> bytes:
    body = json.dumps({"query": question, "format": form, "skip_unreadable": skip}).encode()
    return post(address, "/api/v1/sql", body, timeout_s=TIMEOUT_S)


def _show(answer: Any, *, as_json: bool, empty: str) -> int:
    """Print the rows, and return their number."""
    names = _unique([column["name"] for column in answer["columns"]])
    rows = [dict(zip(names, row, strict=True)) for row in answer["rows"]]
    if as_json:
        show_json(rows)
    else:
        shown = [{name: _cell(value) for name, value in row.items()} for row in rows]
        show(shown, names, as_json=False, empty=empty)
    return len(rows)


def _unique(names: list[str]) -> list[str]:
    """Number columns of the same name, because they would hide each other."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return found


def _cell(value: Any) -> Any:
    """A value in one line, with terminal control characters escaped."""
    if isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, str):
        return value
    shown = value if len(value) <= CELL_CHARS_MAX else value[: CELL_CHARS_MAX - 1] + "…"
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in shown)


def _show_tables(*, as_json: bool) -> None:
    from tidemill.sql.core.catalog import TABLES

    if as_json:
        show_json(
            [
                {
                    "table": table.name,
                    "doc": table.doc,
                    "columns": [{"name": each.name, "type": each.kind, "doc": each.doc} for each in table.columns],
                }
                for table in TABLES.values()
            ]
        )
        return
    for table in TABLES.values():
        say(f"{table.name}: {table.doc}")
        for column in table.columns:
            say(f"  {column.name:20} {column.kind:40} {column.doc}")
