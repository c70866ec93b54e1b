"""The options and columns of the sink, and the marks by which a micro-batch that runs again is recognised.

Columns are those of Spark's kafka sink: `value` (text or binary) is needed; `key`, `headers`, `topic`, `partition` and
`timestamp` may be there. The option `topic` wins over the column. `offset` and `timestampType` are left out, so that
what the source gave can be written as it is.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tidemill.model.errors import InvalidTopic
from tidemill.model.topics import check_topic_name
from tidemill.pipelines.core.errors import LayoutChanged, WrongOption
from tidemill.pipelines.core.options import Options
from tidemill.records.compression import Codec

SINK_NAMES = ("topic", "partitioner", "transactional")
PARTITIONERS = ("consistent_random", "murmur2_random")
CODECS = {codec.name.lower(): codec for codec in Codec}
TRANSACTION_TIMEOUT_MS = 15 * 60 * 1000
"""Transactions stay open until the last task is done; this is the longest that brokers allow unless told otherwise."""
BATCH_BYTES = 1024 * 1024 - 12 * 1024
"""Just below the largest batch that brokers take unless told otherwise."""
HEADERS_TYPE = "array<struct<key:string,value:binary>>"
COLUMN_TYPES = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
    "headers": (HEADERS_TYPE,),
    "offset": ("bigint",),
    "timestampType": ("int",),
}
_MARK = re.compile(r"batch=(\d+) tasks=(\d+)")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """All that a writer has to know."""

    client: Mapping[str, str]
    topic: str | None
    partitioner: str
    transactional: bool
    codec: Codec
    batch_bytes: int
    timeout_ms: int


def parse_sink(given: Mapping[str, str]) -> SinkOptions:
    """The options of a writer; WrongOption names the one that is wrong."""
    options = Options(given, SINK_NAMES)
    topic = options.text("topic")
    if topic is not None:
        try:
            check_topic_name(topic)
        except InvalidTopic as error:
            raise WrongOption(f"topic: {error}") from None
    return SinkOptions(
        client=options.client(),
        topic=topic,
        partitioner=options.choice("partitioner", PARTITIONERS, PARTITIONERS[0]),
        transactional=options.flag("transactional", default=True),
        codec=CODECS[options.choice("kafka.compression.type", CODECS, "none")],
        batch_bytes=options.number("kafka.batch.size") or BATCH_BYTES,
        timeout_ms=options.number("kafka.transaction.timeout.ms") or TRANSACTION_TIMEOUT_MS,
    )


def check_columns(columns: Mapping[str, str], topic: str | None) -> None:
    """Refuse rows that cannot become records; `columns` are their names and Spark's names of their types."""
    if "value" not in columns:
        raise WrongOption(f"the rows have no column value; they have {', '.join(columns) or 'none'}")
    if topic is None and "topic" not in columns:
        raise WrongOption("where to write is missing: give the option topic or a column topic")
    for name, kind in columns.items():
        allowed = COLUMN_TYPES.get(name)
        if allowed is None:
            raise WrongOption(f"there is no place for a column {name}; a record has {', '.join(COLUMN_TYPES)}")
        if kind not in allowed:
            raise WrongOption(f"the column {name} is {kind}; it must be {' or '.join(allowed)}")


class Mark(NamedTuple):
    """What a task leaves in its transaction: the micro-batch that is in it, and how many tasks that one had."""

    batch: int
    tasks: int

    def __str__(self) -> str:
        return f"batch={self.batch} tasks={self.tasks}"


def read_mark(text: str) -> Mark | None:
    """The mark in a text, if there is one."""
    found = _MARK.fullmatch(text)
    return Mark(int(found[1]), int(found[2])) if found else None


def check_layout(batch: int, tasks: int, earlier: Mark) -> None:
    """Refuse to fill up a micro-batch whose rows were spread over tasks in another way."""
    if earlier.batch == batch and earlier.tasks != tasks:
        raise LayoutChanged(
            f"micro-batch {batch} was written in part by {earlier.tasks} tasks and now has {tasks}: "
            "start the query once with the former partitioning, or some rows would be missing or doubled"
        )
