"""Prints the first rows of micro-batches."""

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual alias

ROWS_MAX = 20
"""How many rows of a micro-batch are printed."""


def into_console(name: str, say: Callable[[str], None]) -> Callable[[DataFrame, int], None]:
    """The function for foreachBatch. `name` is that of the sink."""

    def show(rows: DataFrame, batch: int) -> None:
        del batch
        found = rows.select(F.to_json(F.struct("*"))).take(ROWS_MAX + 1)
        for row in found[:ROWS_MAX]:
            say(f"{name}  {row[0]}")
        if len(found) > ROWS_MAX:
            say(f"{name}  ... and more")

    return show
