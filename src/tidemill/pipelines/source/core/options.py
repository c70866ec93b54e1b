"""The options of the source, named like those of Spark's kafka source.

Names are case-insensitive, because Spark does not keep the case. Options that begin with `kafka.` go to the client. All
others must be known here, because users notice an ignored option too late. Every error is one line.
"""

import difflib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tidemill.client.kafka.errors import InvalidClientOption
from tidemill.client.kafka.options import parse_options
from tidemill.model.errors import InvalidTopic
from tidemill.model.topics import TopicPartition, check_topic_name
from tidemill.pipelines.errors import WrongOption
from tidemill.pipelines.source.core.positions import EARLIEST, LATEST, Position, parse_offsets, parse_time, parse_times
from tidemill.pipelines.source.core.sizes import parse_bytes

CLIENT_PREFIX = "kafka."
SERVERS = "kafka.bootstrap.servers"
ISOLATION_LEVELS = {"read_committed": True, "read_uncommitted": False}
SUBSCRIPTIONS = ("assign", "subscribe", "subscribePattern")
MAX_BYTES = "maxBytesPerTrigger"
STREAM_ONLY = (
    "maxOffsetsPerTrigger",
    MAX_BYTES,
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "failOnRecreation",
)
ENDINGS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
PUSH_FILTERS = "pushFilters"
SOURCE_NAMES = (
    *SUBSCRIPTIONS,
    *STREAM_ONLY,
    *ENDINGS,
    PUSH_FILTERS,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "failOnDataLoss",
    "failOnUnreadable",
    "rowsPerBatch",
)
OF_SPARK = ("path", "checkpointLocation", "queryName", "groupIdPrefix")
"""Options that Spark adds, or that have no meaning here and do no harm."""
OF_ITS_CONSUMER = ("kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs")
"""Options of Spark's own consumer. Here the client's `kafka.default.api.timeout.ms` limits all of it."""
OF_OTHERS = {
    "kafka.auto.offset.reset": "set startingOffsets",
    "kafka.enable.auto.commit": "offsets are committed only with kafka.group.id, after each micro-batch",
    "kafka.interceptor.classes": "Java classes are not supported",
    "kafka.key.deserializer": "key and value are binary; convert them in the query: CAST(key AS STRING)",
    "kafka.value.deserializer": "key and value are binary; convert them in the query: CAST(value AS STRING)",
    "kafka.key.serializer": "convert the column in the query: the key is a string or binary",
    "kafka.value.serializer": "convert the column in the query: the value is a string or binary",
    "kafka.transactional.id": "the sink has its own ids; set transactional=true or transactional=false",
}
"""Options of consumers and producers that cannot work here, and what to set instead."""
_CLIENTS = re.compile(r"(?<![\w.])(?=(?:bootstrap|security|sasl|ssl|group|isolation|request|retry|default)\.[a-z])")
"""The start of a client setting that Spark requires with its prefix."""
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS = "headers"
TRIGGER_DELAY = "15m"
UNITS_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
BYTES_PER_TRIGGER = 512 * 1024 * 1024
"""The default limit of a streaming query. It keeps many cores busy, and a sink finishes it within the five minutes that
its transaction may take."""
ROWS_PER_BATCH = 10_000
"""The rows of an Arrow batch that Spark processes fastest."""


class OptionReader:
    """Case-insensitive options, and methods that parse their values."""

    def __init__(self, given: Mapping[str, str], known: Collection[str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        names = {name.lower(): name for name in (*known, *OF_SPARK, *OF_ITS_CONSUMER)}
        for name in self._given:
            if name in OF_OTHERS:
                raise WrongOption(f"{name}: {OF_OTHERS[name]}")
            if name not in names and not name.startswith(CLIENT_PREFIX):
                raise WrongOption(f"option {name} does not exist{_advice(name, names)}")

    def text(self, name: str) -> str | None:
        """The value unchanged."""
        return self._given.get(name.lower())

    def number(self, name: str) -> int | None:
        """A whole number above 0."""
        value = self.text(name)
        if value is None:
            return None
        if not value.strip().isdecimal() or int(value) == 0:
            raise WrongOption(f"{name}: {value!r} is not a whole number above 0")
        return int(value)

    def duration_ms(self, name: str, default: str) -> int:
        """A time in Spark's notation: `500ms`, `10s`, `15m`. A number without a unit is in ms."""
        value = self.text(name) or default
        found = re.fullmatch(r"(\d+)\s*([a-z]*)", value.strip().lower())
        if found is None or found[2] not in UNITS_MS:
            raise WrongOption(f"{name}: {value!r} is not a time such as 500ms, 10s or 15m")
        return int(found[1]) * UNITS_MS[found[2]]

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self.text(name)
        if value is None:
            return default
        if value.strip().lower() not in {"true", "false"}:
            raise WrongOption(f"{name}: {value!r} is neither true nor false")
        return value.strip().lower() == "true"

    def choice(self, name: str, choices: Collection[str], default: str) -> str:
        """One of a few words."""
        value = (self.text(name) or default).strip().lower()
        if value not in choices:
            raise WrongOption(f"{name}: {value!r} is none of {', '.join(choices)}")
        return value

    def client(self) -> dict[str, str]:
        """The client's settings in Kafka's spelling."""
        if not self.text(SERVERS):
            raise WrongOption(f"{SERVERS} is missing; set it to host:port[,host:port]")
        length = len(CLIENT_PREFIX)
        found = {name[length:]: value for name, value in self._given.items() if name.startswith(CLIENT_PREFIX)}
        try:
            parse_options(found)
        except InvalidClientOption as error:
            raise WrongOption(_CLIENTS.sub(CLIENT_PREFIX, str(error))) from None
        return found

    def forbid(self, names: Collection[str], reason: str) -> None:
        """Refuse options that do not apply to this kind of query."""
        for name in names:
            if self.text(name) is not None:
                raise WrongOption(f"{name} {reason}")


def _advice(name: str, names: Mapping[str, str]) -> str:
    """The most similar option that exists."""
    if _CLIENTS.match(name):
        return f"; did you mean {CLIENT_PREFIX}{name}?"
    near = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {names[near[0]]}?" if near else ""


@dataclass(frozen=True, slots=True)
class SourceSubscription:
    """Which partitions are read: those of the named topics, of matching topics, or exactly the assigned ones."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The parsed options of a reader."""

    client: Mapping[str, str]
    subscription: SourceSubscription
    starting: Position
    ending: Position
    no_later_record: str
    committed: bool
    group: str | None
    min_offsets: int | None
    max_delay_ms: int
    max_offsets: int | None
    max_bytes: int | None
    min_partitions: int | None
    max_records: int | None
    include_headers: bool
    fail_on_data_loss: bool
    fail_on_recreation: bool
    fail_on_unreadable: bool
    push_filters: bool
    rows: int


def parse_source(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Parse the options of a batch or streaming query. WrongOption names the invalid option."""
    options = OptionReader(given, SOURCE_NAMES)
    if streaming:
        options.forbid(ENDINGS, "is for batch queries; a streaming query has no end")
        options.forbid([PUSH_FILTERS], "is for batch queries; Spark offers no filters to streaming ones")
    else:
        options.forbid(STREAM_ONLY, "is for streaming queries; a batch query reads its whole range")
    fails = options.flag("failOnDataLoss", default=True)
    level = options.choice("kafka.isolation.level", ISOLATION_LEVELS, "read_committed")
    return SourceOptions(
        client=options.client(),
        subscription=_subscription(options),
        starting=_starting(options, streaming=streaming),
        ending=_position(options, "ending") or parse_offsets("endingOffsets", "latest"),
        no_later_record=options.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error"),
        committed=ISOLATION_LEVELS[level],
        group=options.text("kafka.group.id"),
        min_offsets=_min_offsets(options),
        max_delay_ms=options.duration_ms("maxTriggerDelay", TRIGGER_DELAY),
        max_offsets=options.number("maxOffsetsPerTrigger"),
        max_bytes=_max_bytes(options, streaming=streaming),
        min_partitions=options.number("minPartitions"),
        max_records=options.number("maxRecordsPerPartition"),
        include_headers=options.flag("includeHeaders", default=False),
        fail_on_data_loss=fails,
        fail_on_recreation=options.flag("failOnRecreation", default=fails),
        fail_on_unreadable=options.flag("failOnUnreadable", default=True),
        push_filters=options.flag(PUSH_FILTERS, default=False),
        rows=options.number("rowsPerBatch") or ROWS_PER_BATCH,
    )


def columns_of(given: Mapping[str, str]) -> tuple[str, ...]:
    """The columns that the options request. Errors that are possible in any query are raised here already."""
    options = OptionReader(given, SOURCE_NAMES)
    options.client()
    _subscription(options)
    return (*COLUMNS, HEADERS) if options.flag("includeHeaders", default=False) else COLUMNS


def _max_bytes(options: OptionReader, *, streaming: bool) -> int | None:
    """The given limit. Without one, a streaming query has a default, so that it can start on a large backlog."""
    value = options.text(MAX_BYTES)
    if value is None:
        limited = not streaming or options.text("maxOffsetsPerTrigger") is not None
        return None if limited else BYTES_PER_TRIGGER
    return parse_bytes(MAX_BYTES, value)


def _min_offsets(options: OptionReader) -> int | None:
    least, most = options.number("minOffsetsPerTrigger"), options.number("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise WrongOption(f"minOffsetsPerTrigger: {least} is more than maxOffsetsPerTrigger, which is {most}")
    return least


def _starting(options: OptionReader, *, streaming: bool) -> Position:
    position = _position(options, "starting", refused=None if streaming else LATEST)
    return position or parse_offsets("startingOffsets", "latest" if streaming else "earliest")


def _position(options: OptionReader, which: str, refused: int | None = EARLIEST) -> Position | None:
    """The first of the given options in this order, as in Spark's kafka source: a time, times, offsets."""
    time, times, offsets = (f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets")
    if (value := options.text(time)) is not None:
        return parse_time(time, value)
    if (value := options.text(times)) is not None:
        return parse_times(times, value)
    if (value := options.text(offsets)) is not None:
        return parse_offsets(offsets, value, refused)
    return None


def _subscription(options: OptionReader) -> SourceSubscription:
    given = [name for name in SUBSCRIPTIONS if options.text(name) is not None]
    if len(given) != 1:
        what = " and ".join(given) if given else "none"
        raise WrongOption(f"set one of {', '.join(SUBSCRIPTIONS)}; found {what}")
    value = (options.text(given[0]) or "").strip()
    if given[0] == "subscribe":
        topics = tuple(sorted({name.strip() for name in value.split(",") if name.strip()}))
        return SourceSubscription(topics=_checked("subscribe", topics))
    if given[0] == "subscribePattern":
        return SourceSubscription(pattern=_pattern(value))
    return SourceSubscription(assigned=_assigned(value))


def _checked(option: str, topics: tuple[str, ...]) -> tuple[str, ...]:
    if not topics:
        raise WrongOption(f"{option} names no topic")
    for topic in topics:
        try:
            check_topic_name(topic)
        except InvalidTopic as error:
            raise WrongOption(f"{option}: {error}") from None
    return topics


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise WrongOption(f"subscribePattern: {value!r} is not a regular expression: {error}") from None
    if not value:
        raise WrongOption("subscribePattern is empty")
    return value


def _assigned(value: str) -> tuple[TopicPartition, ...]:
    example = 'such as {"orders": [0, 1]}'
    try:
        topics = json.loads(value)
    except ValueError:
        raise WrongOption(f"assign: {value!r} is not JSON {example}") from None
    if not isinstance(topics, dict) or not topics:
        raise WrongOption(f"assign: {value!r} is not JSON {example}")
    found: list[TopicPartition] = []
    for topic, indexes in topics.items():
        if not isinstance(indexes, list) or not all(type(index) is int and index >= 0 for index in indexes):
            raise WrongOption(f"assign: the partitions of {topic} are not a list of numbers, {example}")
        found.extend(TopicPartition(topic, index) for index in indexes)
    if not found:
        raise WrongOption(f"assign names no partition; write them {example}")
    return tuple(sorted(set(found)))
