"""The documents of SQL: tables, queries, results, and charts of results."""

from typing import Annotated, Any, Literal

import msgspec

from tidemill.wire.http.document import Document, Input

QUERY_CHARS_MAX = 64 * 1024
LIMIT_MAX = 1_000_000
POINTS_MAX = 1_000
"""The most rows of a result that a chart shows."""
LABEL_CHARS_MAX = 200

QueryText = Annotated[str, msgspec.Meta(max_length=QUERY_CHARS_MAX, description="One SELECT.")]
ColumnLabel = Annotated[str, msgspec.Meta(max_length=LABEL_CHARS_MAX)]


class SqlColumnRow(Document, frozen=True, kw_only=True):
    """A column of a table."""

    name: str
    type: str
    doc: str


class SqlTableRow(Document, frozen=True, kw_only=True):
    """A table that queries can read."""

    table: str
    doc: str
    columns: list[SqlColumnRow]


class SqlTables(Document, frozen=True, kw_only=True):
    """All tables. `problem` says why this broker cannot run queries."""

    tables: list[SqlTableRow]
    problem: str | None


class QueryRequest(Input, frozen=True, kw_only=True):
    """A query, and how its result is written."""

    query: QueryText
    limit: (
        Annotated[int, msgspec.Meta(ge=1, le=LIMIT_MAX, description="The result ends after so many rows.")] | None
    ) = None
    format: Literal["json", "jsonl", "csv", "parquet"] = "json"
    skip_unreadable: bool = False
    """Whether record batches that cannot be read are left out; otherwise they end the query."""
    exact_integers: bool = False
    """Whether JSON has integers of 64 bits and more as text, because JavaScript cannot read them exactly."""
    guard_formulas: bool = False
    """Whether text in CSV that a spreadsheet would run as a formula begins with an apostrophe."""


class ResultColumn(Document, frozen=True, kw_only=True):
    """A column of a result, with its ClickHouse type."""

    name: str
    type: str


class QueryResult(Document, frozen=True, kw_only=True):
    """The result of a query. A row has a value for each column."""

    columns: list[ResultColumn]
    rows: list[list[Any]]
    row_count: int
    truncated: bool
    """Whether the query has more rows than `limit`."""
    elapsed_s: float
    rows_read: int
    """Rows of tables that the query has read."""
    bytes_read: int


class SqlPageQuery(Input, frozen=True, kw_only=True):
    """The query that the page shows. It runs when the user says so."""

    query: QueryText = ""


class ChartRequest(Input, frozen=True, kw_only=True):
    """Two columns of a result. The labels are those of the horizontal axis; null is a row without a value."""

    kind: Literal["line", "bar"]
    label_name: ColumnLabel
    labels: Annotated[list[ColumnLabel], msgspec.Meta(min_length=1, max_length=POINTS_MAX)]
    value_name: ColumnLabel
    values: Annotated[list[float | None], msgspec.Meta(min_length=1, max_length=POINTS_MAX)]
