"""Schedules micro-batches on a timeline: each row becomes a message that is due at the time in one of its columns.

A timeline rejects a message with a known id as a duplicate. So a repeated micro-batch adds nothing, as long as its
messages are still there. A row without an id gets one made of the query, the micro-batch and the row itself, plus a
counter for equal rows. Such ids do not depend on the number and order of the tasks. A message that was completed before
the micro-batch ran again is delivered once more: timelines deliver at least once.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual alias

from tidemill.client.timelines import Message, Timeline
from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.spark.lake import query_of

MESSAGES = 1_000
"""How many messages are scheduled at a time."""
RESTART_MS = 30_000
"""Every micro-batch connects again. The address worked before, so a broker that does not answer is restarting."""
ID_DIGITS = 32
MS_PER_SECOND = 1_000


def messages_of(rows: DataFrame, columns: Mapping[str, str], key: str | None) -> DataFrame:
    """The rows with the columns of a message. `columns` has due, body and optionally id."""
    return rows.select(
        _text(columns.get("id")).alias("id"),
        F.unix_millis(F.col(columns["due"]).cast("timestamp")).alias("due_ms"),
        _bytes(rows, columns["body"]).alias("body"),
        (F.lit(None).cast("binary") if key is None else _bytes(rows, key)).alias("key"),
    )


def into_timeline(
    address: str, name: str, checkpoint: Path, client: Mapping[str, str]
) -> Callable[[DataFrame, int], None]:
    """The function for foreachBatch. `client` has the settings for TLS and login, which serve Kafka and gRPC."""

    def schedule(rows: DataFrame, batch: int) -> None:
        messages = to_messages(rows.toLocalIterator(), f"{query_of(checkpoint)}/{batch}")
        with Timeline(address, name, connect_timeout_ms=RESTART_MS, client=client) as timeline:
            while waiting := list(islice(messages, MESSAGES)):
                timeline.schedule(waiting)

    return schedule


def to_messages(rows: Iterable[Any], origin: str) -> Iterator[Message]:
    """The rows as messages. `origin` is unique to the micro-batch."""
    seen: Counter[str] = Counter()
    for row in rows:
        if row["due_ms"] is None or row["body"] is None:
            missing = "due time" if row["due_ms"] is None else "body"
            raise PipelineError(f"a row for the timeline has no {missing}; filter such rows out or fill the column")
        body, key = bytes(row["body"]), None if row["key"] is None else bytes(row["key"])
        yield Message(body, row["due_ms"] / MS_PER_SECOND, id=row["id"] or _id(row, origin, seen), key=key)


def _id(row: Any, origin: str, seen: Counter[str]) -> str:
    parts = (origin.encode(), str(row["due_ms"]).encode(), bytes(row["key"] or b""), bytes(row["body"]))
    digest = sha256(b"".join(len(part).to_bytes(8) + part for part in parts)).hexdigest()[:ID_DIGITS]
    seen[digest] += 1
    return digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"


def _text(column: str | None) -> Column:
    return F.lit(None).cast("string") if column is None else F.col(column).cast("string")


def _bytes(rows: DataFrame, column: str) -> Column:
    chosen = F.col(column)
    if rows.select(chosen).schema[0].dataType.simpleString() == "binary":
        return chosen
    return chosen.cast("string").cast("binary")
