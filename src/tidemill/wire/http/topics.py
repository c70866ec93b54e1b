"""The documents of topics."""

from typing import Annotated, Literal

import msgspec

from tidemill.wire.http.document import SEARCH_CHARS_MAX, Document, Input, PageQuery

TOPIC_NAME_CHARS_MAX = 249
PARTITIONS_MAX = 10_000
PARTITIONS_AT_ONCE_MAX = 1_000
"""The most partitions that a topic gets in the console, which waits for their creation."""
REPLICAS_MAX = 32_767
SETTINGS_PER_CHANGE_MAX = 100
SETTING_CHARS_MAX = 10_000
OFFSET_MAX = 2**63 - 1
HISTORY_MINUTES_MAX = 30

PartitionIndex = Annotated[int, msgspec.Meta(ge=0, le=PARTITIONS_MAX - 1)]
SettingName = Annotated[str, msgspec.Meta(min_length=1, max_length=TOPIC_NAME_CHARS_MAX)]
SettingText = Annotated[str, msgspec.Meta(max_length=SETTING_CHARS_MAX)]


class TopicQuery(PageQuery, frozen=True, kw_only=True):
    """Which topics are listed."""

    sort: Literal[
        "name",
        "partitions",
        "replicas",
        "records",
        "bytes",
        "records_in",
        "bytes_in",
        "bytes_out",
        "cleanup_policy",
        "under_replicated",
    ] = "name"
    internal: bool = False
    problems: Annotated[bool, msgspec.Meta(description="Only topics with a problem.")] = False


class TopicRow(Document, frozen=True, kw_only=True):
    """One topic of a list. What only leaders know is null while the leader of a partition does not answer.

    It is null in commands, too, which do not ask the leaders of all topics, and neither for settings.
    """

    topic: str
    internal: bool
    partitions: int
    replicas: int
    records: int | None
    bytes: int | None
    storage: Literal["segments", "clickhouse"] | None
    records_in: float | None
    """Records per second. Null for a topic that is not among the topics whose rates a broker samples."""
    bytes_in: float | None
    bytes_out: float | None
    cleanup_policy: str | None
    """Null for a client that may not see settings."""
    without_leader: int
    """Partitions without a leader."""
    under_replicated: int
    """Partitions with a replica that is not in sync."""
    under_min_isr: int | None
    """Partitions that refuse writes with acks=all; null in commands."""


class TopicPage(Document, frozen=True, kw_only=True):
    """A page of topics."""

    topics: list[TopicRow]
    total: int
    problems: int | None
    """Topics with a problem, among those that match; null in commands."""
    unreachable_brokers: list[int]
    """Brokers that did not answer, whose numbers are missing."""


class TopicSizesQuery(Document, frozen=True, kw_only=True):
    """The topics whose sizes one broker asks another for."""

    topics: list[str]


class TopicSizes(Document, frozen=True, kw_only=True):
    """Records and bytes of the partitions of each topic that one broker leads."""

    sizes: dict[str, tuple[int, int]]
    in_tables: list[str]
    """The topics whose records are rows of ClickHouse."""


class PartitionRow(Document, frozen=True, kw_only=True):
    """One partition. What only its leader knows is null while it does not answer."""

    partition: int
    leader: int | None
    replicas: list[int]
    isr: list[int]
    leader_epoch: int | None
    """Null in commands."""
    start: int | None
    end: int | None
    stable: int | None
    """Readers of committed records see the records below it."""
    records: int | None
    bytes: int | None


class TopicDescription(Document, frozen=True, kw_only=True):
    """A topic with its partitions, and with the settings that differ from the defaults."""

    topic: str
    topic_id: str | None
    internal: bool
    partitions: list[PartitionRow]
    config: dict[str, str] | None
    """Null for a client that may not see settings."""
    unreachable_brokers: list[int]


class TopicHistoryQuery(Input, frozen=True, kw_only=True):
    """The time that the history of a topic goes back."""

    minutes: Annotated[int, msgspec.Meta(ge=1, le=HISTORY_MINUTES_MAX)] = 10


class PartitionQuery(PageQuery, frozen=True, kw_only=True):
    """Which partitions of a topic a page shows; `search` is a part of a number."""

    sort: Literal["partition", "leader", "replicas", "isr", "start", "end", "records", "bytes"] = "partition"
    broker: (
        Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1, description="Only partitions with a replica on this broker.")]
        | None
    ) = None
    problems: Annotated[bool, msgspec.Meta(description="Only partitions with a problem.")] = False


class SettingQuery(Input, frozen=True, kw_only=True):
    """Which settings of a topic a page shows."""

    search: Annotated[str, msgspec.Meta(max_length=SEARCH_CHARS_MAX, description="Part of a name or a meaning.")] = ""
    changed: Annotated[bool, msgspec.Meta(description="Only settings that differ from the defaults.")] = False


class TopicGroupQuery(PageQuery, frozen=True, kw_only=True):
    """Which groups of a topic a page shows."""

    sort: Literal["", "group", "type", "state", "members", "lag", "lag_s", "coordinator"] = ""
    """Empty: the largest lag first."""


class PartitionFactsQuery(Document, frozen=True, kw_only=True):
    """The topic whose partitions one broker asks another for."""

    topic: str


class PartitionFacts(Document, frozen=True, kw_only=True):
    """What the leader of a partition knows."""

    partition: int
    leader_epoch: int
    start: int
    end: int
    stable: int
    bytes: int


class PartitionFactsPart(Document, frozen=True, kw_only=True):
    """The partitions of a topic that one broker leads."""

    partitions: list[PartitionFacts]


class NewTopicInput(Input, frozen=True, kw_only=True):
    """A topic to create. -1 takes the default of the broker."""

    topic: Annotated[str, msgspec.Meta(min_length=1, max_length=TOPIC_NAME_CHARS_MAX)]
    partitions: Annotated[int, msgspec.Meta(ge=-1, le=PARTITIONS_AT_ONCE_MAX)] = -1
    replication_factor: Annotated[int, msgspec.Meta(ge=-1, le=REPLICAS_MAX)] = -1
    config: Annotated[dict[SettingName, SettingText], msgspec.Meta(max_length=SETTINGS_PER_CHANGE_MAX)] = msgspec.field(
        default_factory=dict
    )
    validate_only: bool = False
    """Only check whether the topic can be created."""


class CreatedTopic(Document, frozen=True, kw_only=True):
    """The result of a creation."""

    topic: str
    partitions: int
    created: bool
    """False if it existed before, or was only checked."""


class TopicPartitionsInput(Input, frozen=True, kw_only=True):
    """How many partitions a topic has from now on."""

    partitions: Annotated[int, msgspec.Meta(ge=1, le=PARTITIONS_AT_ONCE_MAX)]


class SettingSource(Document, frozen=True, kw_only=True):
    """One place that gives a setting a value."""

    name: str
    value: str | None
    source: Literal["topic", "broker", "default"]


class TopicSettingRow(Document, frozen=True, kw_only=True):
    """One setting of a topic. The value is null for a secret."""

    name: str
    value: str | None
    default: str | None
    """The value without an override of the topic."""
    source: Literal["topic", "broker", "default"]
    kind: Literal["boolean", "string", "int", "long", "double", "list", "unknown"]
    read_only: bool
    documentation: str
    sources: list[SettingSource]
    """The places that give it a value, the one that counts first."""


class TopicSettingList(Document, frozen=True, kw_only=True):
    """Every setting of a topic."""

    topic: str
    settings: list[TopicSettingRow]


class TopicSettingsInput(Input, frozen=True, kw_only=True):
    """Settings to change. Null removes the override of the topic."""

    config: Annotated[
        dict[SettingName, SettingText | None], msgspec.Meta(min_length=1, max_length=SETTINGS_PER_CHANGE_MAX)
    ]


class RecordDeletion(Input, frozen=True, kw_only=True):
    """The records of a partition below an offset; -1 is the end of the partition."""

    partition: PartitionIndex
    before: Annotated[int, msgspec.Meta(ge=-1, le=OFFSET_MAX)]


class RecordDeletionsInput(Input, frozen=True, kw_only=True):
    """The records to delete."""

    partitions: Annotated[list[RecordDeletion], msgspec.Meta(min_length=1, max_length=PARTITIONS_MAX)]


class PartitionStart(Document, frozen=True, kw_only=True):
    """The first offset of a partition."""

    partition: int
    start: int


class PartitionStarts(Document, frozen=True, kw_only=True):
    """The first offsets after a deletion."""

    topic: str
    partitions: list[PartitionStart]


class ProducerQuery(PageQuery, frozen=True, kw_only=True):
    """Which producers are listed."""

    partition: PartitionIndex | None = None
    transactional: Annotated[bool, msgspec.Meta(description="Only producers with an open transaction.")] = False


class ProducerRow(Document, frozen=True, kw_only=True):
    """A producer that a partition remembers."""

    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    transaction_start: int | None
    """The first offset of its open transaction."""


class ProducerPage(Document, frozen=True, kw_only=True):
    """A page of producers, those with an open transaction first."""

    topic: str
    producers: list[ProducerRow]
    total: int
    open_transactions: int
