"""One query of a client, as the servers and the query executor pass it on."""

from collections.abc import Mapping
from typing import NamedTuple

FORMATS: Mapping[str, str] = {
    "json": "JSONCompact",
    "jsonl": "JSONEachRow",
    "csv": "CSVWithNames",
    "parquet": "Parquet",
}
"""The engine's name of each format."""


class SqlQuery(NamedTuple):
    """The text of a query, and how its result is written."""

    text: str
    form: str = "json"
    """One of FORMATS."""
    skip_unreadable: bool = False
    """Whether record batches that cannot be read are left out; otherwise they end the query."""
    rows_max: int | None = None
    """The result ends after so many rows; None: only the limits of the broker apply."""
    quotes_integers: bool = False
    """Whether JSON has integers of 64 bits and more as text, because JavaScript cannot read them exactly."""

    @property
    def result_settings(self) -> dict[str, int]:
        """The settings of the engine for this query."""
        settings = {"output_format_json_quote_64bit_integers": int(self.quotes_integers)}
        return settings if self.rows_max is None else {**settings, "limit": self.rows_max}
