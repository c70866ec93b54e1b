"""The options and columns of the sink.

The columns are those of Spark's kafka sink. `value` (text or binary) is required; `key`, `headers`, `topic`,
`partition` and `timestamp` are optional. The option `topic` takes precedence over the column. `offset` and
`timestampType` are ignored, so that rows of the source can be written unchanged.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.model.errors import InvalidTopic
from tidemill.model.topics import check_topic_name
from tidemill.pipelines.errors import WrongOption
from tidemill.pipelines.source.core.options import OptionReader
from tidemill.records.compression import Codec
from tidemill.records.incremental_compression import LEVELS, Compression

SINK_NAMES = ("topic", "partitioner", "transactional")
PARTITIONERS = ("consistent_random", "murmur2_random")
CODECS = {codec.name.lower(): codec for codec in Codec}
STREAM_TIMEOUT_MS = 5 * 60 * 1000
"""The limit for a micro-batch, and the longest time that readers wait for one whose driver never restarts."""
BATCH_TIMEOUT_MS = 15 * 60 * 1000
"""The brokers' default maximum. A batch write cannot be split into shorter ones."""
SINK_LEVELS = {Codec.ZSTD: 1}
"""Level 1 takes two thirds to three quarters of the time of level 3, Kafka's default. JSON needs 8 % more space, some
rows need less."""
BATCH_BYTES = 1024 * 1024 - 12 * 1024
"""Just below the brokers' default limit for a batch."""
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


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The parsed options of a writer."""

    client: Mapping[str, str]
    topic: str | None
    partitioner: str
    transactional: bool
    compression: Compression
    batch_bytes: int
    timeout_ms: int
    checkpoint: str | None = None


def parse_sink(given: Mapping[str, str], *, streaming: bool = False) -> SinkOptions:
    """Parse the options of a writer. WrongOption names the invalid option."""
    options = OptionReader(given, SINK_NAMES)
    longest_ms = STREAM_TIMEOUT_MS if streaming else BATCH_TIMEOUT_MS
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
        compression=_compression(options),
        batch_bytes=options.number("kafka.batch.size") or BATCH_BYTES,
        timeout_ms=options.number("kafka.transaction.timeout.ms") or longest_ms,
        checkpoint=options.text("checkpointLocation"),
    )


def _compression(options: OptionReader) -> Compression:
    codec = CODECS[options.choice("kafka.compression.type", CODECS, "none")]
    levels = {each: _level(options, f"kafka.compression.{each.name.lower()}.level", LEVELS[each]) for each in LEVELS}
    return Compression(codec, levels.get(codec) or SINK_LEVELS.get(codec))


def _level(options: OptionReader, name: str, levels: range) -> int | None:
    level = options.number(name)
    if level is not None and level not in levels:
        raise WrongOption(f"{name}: {level} is not between {levels[0]} and {levels[-1]}")
    return level


def check_columns(columns: Mapping[str, str], topic: str | None) -> None:
    """Refuse rows that cannot become records. `columns` are names and Spark's type names."""
    if "value" not in columns:
        raise WrongOption(f"the rows have no column value; they have {', '.join(columns) or 'none'}")
    if topic is None and "topic" not in columns:
        raise WrongOption("the target topic is missing; set the option topic or add a column topic")
    for name, kind in columns.items():
        allowed = COLUMN_TYPES.get(name)
        if allowed is None:
            raise WrongOption(f"column {name} is not supported; a record has {', '.join(COLUMN_TYPES)}")
        if kind not in allowed:
            raise WrongOption(f"the column {name} is {kind}; it must be {' or '.join(allowed)}")
