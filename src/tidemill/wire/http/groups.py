"""The documents of consumer groups."""

from typing import Annotated, Literal

import msgspec

from tidemill.wire.http.document import Document, Input, PageQuery

PARTITIONS_MAX = 10_000
"""The most partitions of one change."""
NAMED_MAX = 1_000
"""The most partitions that one change names by themselves, so that the body stays small."""
TOPICS_MAX = 100
OFFSET_MAX = 2**63 - 1

Offset = Annotated[int, msgspec.Meta(ge=0, le=OFFSET_MAX)]
PartitionIndex = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
TopicName = Annotated[str, msgspec.Meta(min_length=1, max_length=249)]


class GroupQuery(PageQuery, frozen=True, kw_only=True):
    """Which groups are listed. `state` and `type` select groups; empty selects all."""

    sort: Literal["group", "type", "state", "protocol", "assignor", "members", "topics", "lag", "coordinator"] = "group"
    state: Literal[
        "",
        "Stable",
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Assigning",
        "Reconciling",
        "Dead",
    ] = ""
    type: Literal["", "classic", "consumer", "share"] = ""


class GroupRow(Document, frozen=True, kw_only=True):
    """One group of a list. The lag counts the topics that the client may describe; null while it is not known.

    The fields after `protocol` are null in `tidemill group list`, because Kafka's list of groups does not have them.
    """

    group: str
    type: str
    """`classic`, `consumer` (KIP-848) or `share` (KIP-932)."""
    state: str
    """Kafka's spelling, for example `Stable`."""
    protocol: str
    """The type of protocol: `consumer` for groups of consumers; empty for a group that never had members."""
    assignor: str | None
    members: int | None
    topics: list[str] | None
    """The first topics that the group reads or has read."""
    topic_count: int | None
    lag: int | None
    """Records that the group has not read."""
    lag_s: float | None
    """Age of the oldest record that the group has not read, in seconds."""
    coordinator: int | None


class GroupPage(Document, frozen=True, kw_only=True):
    """A page of groups. `states` counts the groups of the search in each state."""

    groups: list[GroupRow]
    total: int
    states: dict[str, int]
    unreachable_brokers: list[int]
    """Brokers that did not answer, whose groups are missing."""


class GroupsQuestion(Document, frozen=True, kw_only=True):
    """What one broker asks another for: the first rows, in the order of the page."""

    search: str
    state: str
    type: str
    sort: str
    descending: bool
    limit: int


class GroupsPart(Document, frozen=True, kw_only=True):
    """The groups that one broker coordinates."""

    groups: list[GroupRow]
    total: int
    states: dict[str, int]
    is_loading: bool
    """Whether the broker has not yet read all of its groups."""


class TopicGroupsQuestion(Document, frozen=True, kw_only=True):
    """The topic whose groups one broker asks another for."""

    topic: str
    search: str = ""
    """Part of the name of a group."""


class TopicGroupRow(Document, frozen=True, kw_only=True):
    """A group that reads or has read one topic, with its lag in this topic."""

    group: str
    type: str
    state: str
    members: int
    lag: int | None
    lag_s: float | None
    coordinator: int


class TopicGroupsPart(Document, frozen=True, kw_only=True):
    """The groups of one topic that one broker coordinates."""

    groups: list[TopicGroupRow]
    total: int


class TopicGroups(Document, frozen=True, kw_only=True):
    """The groups of one topic: those with the largest lag, and how many there are."""

    groups: list[TopicGroupRow]
    total: int
    unreachable_brokers: list[int]


class GroupDescriptionQuery(PageQuery, frozen=True, kw_only=True):
    """Which partitions of a group are listed; `search` is a part of the name of a topic."""

    sort: Literal["partition", "committed", "end", "lag", "lag_s", "committed_ms", "member", "client"] = "partition"
    members_page: Annotated[int, msgspec.Meta(ge=1, le=1_000_000, description="The page of the members.")] = 1


class GroupQuestion(Document, frozen=True, kw_only=True):
    """The group, and the rows of it, that one broker asks its coordinator for."""

    group: str
    asked: GroupDescriptionQuery


class AssignedTopic(Document, frozen=True, kw_only=True):
    """The partitions of one topic."""

    topic: str
    partitions: list[int]


class GroupMemberRow(Document, frozen=True, kw_only=True):
    """One member of a group. `rack`, `epoch`, `is_leader` and `topics` are null in commands."""

    member: str
    client: str
    host: str
    instance: str | None
    """Set for static members."""
    rack: str | None
    protocol: str
    """`classic` or `consumer` (KIP-848). A group can have both while its members are upgraded."""
    epoch: int | None
    """The generation of a classic member."""
    is_leader: bool | None
    topics: list[str] | None
    """The topics of its subscription."""
    pattern: str | None
    assigned: list[AssignedTopic]
    target: list[AssignedTopic]
    """What it gets at the end of the rebalance."""


class GroupPartitionRow(Document, frozen=True, kw_only=True):
    """One partition that a group has committed, or that a member has."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    """The last stable offset: where a read_committed consumer ends."""
    lag: int | None
    lag_s: float | None
    committed_ms: int | None
    metadata: str
    leader_epoch: int | None
    is_unstable: bool | None
    """Whether an open transaction may change the offset; null in commands."""
    member: str | None
    client: str | None
    host: str | None


class SharePartitionRow(Document, frozen=True, kw_only=True):
    """One partition of a share group. The records by state are known while members fetch from it."""

    topic: str
    partition: int
    members: int = 0
    """Members that fetch from it."""
    start: int | None = None
    """The first offset that is not done; null before the first fetch."""
    end: int | None = None
    lag: int | None = None
    """Records that are not done."""
    acquired: int | None = None
    """Records that a member has a lock of."""
    available: int | None = None
    """Records that were delivered, and are delivered again next."""
    waiting: int | None = None
    """Records that wait for their retry."""
    oldest_lock_s: float | None = None


class SharePositionsQuestion(Document, frozen=True, kw_only=True):
    """The share group whose positions one broker asks another for."""

    group: str


class SharePositionsPart(Document, frozen=True, kw_only=True):
    """The positions that one broker knows."""

    rows: list[SharePartitionRow]


class ShareLagsQuestion(Document, frozen=True, kw_only=True):
    """The share groups whose lag one broker asks another for: in one topic, or in all of them."""

    groups: list[str]
    topic: str


class ShareLagsPart(Document, frozen=True, kw_only=True):
    """The lag of share groups that one broker counts."""

    lags: dict[str, int]


class GroupDescription(Document, frozen=True, kw_only=True):
    """One group: its state, a page of its members and a page of its partitions."""

    group: str
    type: str
    state: str
    explanation: str
    """What the state means, and what to do about it."""
    protocol: str
    assignor: str
    coordinator: int
    epoch: int | None
    """The generation of a classic group."""
    target_epoch: int | None
    """The epoch of the assignment; smaller than `epoch` while a new one is computed."""
    lag: int | None
    lag_s: float | None
    unknown_partitions: int
    """Partitions whose lag is not known: their leader does not answer, or nothing was committed."""
    members: list[GroupMemberRow]
    member_count: int
    partitions: list[GroupPartitionRow]
    partition_count: int
    topics: list[str]
    hidden_topics: int
    """Topics that the client may not describe; their partitions are left out."""
    shared: list[SharePartitionRow] = msgspec.field(default_factory=list)
    """The partitions of a share group, which commits no offsets; `partitions` is empty then."""


class ToEarliest(Input, frozen=True, kw_only=True, tag_field="to", tag="earliest"):
    """To the first record."""


class ToLatest(Input, frozen=True, kw_only=True, tag_field="to", tag="latest"):
    """To the end."""


class ToTime(Input, frozen=True, kw_only=True, tag_field="to", tag="time"):
    """To the first record at or after a time; to the end if there is none."""

    time_ms: Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class ByDuration(Input, frozen=True, kw_only=True, tag_field="to", tag="duration"):
    """To the first record that is not older than this."""

    duration_ms: Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class ShiftBy(Input, frozen=True, kw_only=True, tag_field="to", tag="shift"):
    """Forward by a number of offsets, or back by a negative one."""

    by: Annotated[int, msgspec.Meta(ge=-OFFSET_MAX, le=OFFSET_MAX)]


class ToOffset(Input, frozen=True, kw_only=True, tag_field="to", tag="offset"):
    """To the same offset in each partition."""

    offset: Offset


class ExactOffset(Input, frozen=True, kw_only=True):
    """The offset of one partition. With `previous`, the change is refused when the committed offset is another one."""

    topic: TopicName
    partition: PartitionIndex
    offset: Offset
    previous: Offset | msgspec.UnsetType | None = msgspec.UNSET


class ToOffsets(Input, frozen=True, kw_only=True, tag_field="to", tag="offsets"):
    """To an offset of its own in each partition, for example to the offsets of a preview."""

    offsets: Annotated[list[ExactOffset], msgspec.Meta(min_length=1, max_length=NAMED_MAX)]


ResetTarget = ToEarliest | ToLatest | ToTime | ByDuration | ShiftBy | ToOffset | ToOffsets


class SelectedTopic(Input, frozen=True, kw_only=True):
    """A topic, and the partitions of it; null selects all."""

    topic: TopicName
    partitions: Annotated[list[PartitionIndex], msgspec.Meta(max_length=NAMED_MAX)] | None = None


class OffsetsReset(Input, frozen=True, kw_only=True):
    """Where the offsets of a group go. Without `topics` all partitions with a committed offset are reset."""

    target: ResetTarget
    topics: Annotated[list[SelectedTopic], msgspec.Meta(min_length=1, max_length=TOPICS_MAX)] | None = None
    dry_run: bool = False
    """Return the changes and make none."""


class ResetPartition(Document, frozen=True, kw_only=True):
    """The change of one partition. `records` are skipped if positive, and read again if negative; null: no commit."""

    topic: str
    partition: int
    previous: int | None = msgspec.field(name="from")
    to: int
    records: int | None


class ResetOutcome(Document, frozen=True, kw_only=True):
    """The changes of a reset."""

    group: str
    dry_run: bool
    refusal: str | None
    """Of a dry run: why the change would be refused now."""
    partitions: list[ResetPartition]
    skipped: int
    read_again: int


class RecordSkip(Input, frozen=True, kw_only=True):
    """Skip one record. `offset` is the one of the preview; without `dry_run` it is required."""

    topic: TopicName
    partition: PartitionIndex
    offset: Offset | None = None
    dry_run: bool = False


class SkippedRecord(Document, frozen=True, kw_only=True):
    """The record that is skipped. The key is text where it is UTF-8, and base64 otherwise; it can be cut."""

    group: str
    dry_run: bool
    refusal: str | None
    """Of a dry run: why the change would be refused now."""
    topic: str
    partition: int
    previous: int = msgspec.field(name="from")
    to: int
    offset: int
    time_ms: int
    key: str | None
    key_is_base64: bool
    value_bytes: int | None


class DeletedOffsets(Document, frozen=True, kw_only=True):
    """The partitions whose committed offsets were deleted."""

    group: str
    topic: str
    partitions: list[int]


class LagHistoryQuery(Input, frozen=True, kw_only=True):
    """How far a history goes back."""

    minutes: Annotated[int, msgspec.Meta(ge=1, le=30)] = 10


class LagSample(Document, frozen=True, kw_only=True):
    """The lag of a group at one time; null where it is not known."""

    time_ms: int
    lag: int | None
    lag_s: float | None


class GroupLagHistory(Document, frozen=True, kw_only=True):
    """The lag of a group over time, oldest first."""

    group: str
    samples: list[LagSample]


class LagHistoryQuestion(Document, frozen=True, kw_only=True):
    """The groups whose history one broker asks another for, and the number of samples."""

    groups: list[str]
    slots: int


class LagSeries(Document, frozen=True, kw_only=True):
    """The lag of one group in each slot."""

    records: list[float | None]
    seconds: list[float | None]


class LagHistoryPart(Document, frozen=True, kw_only=True):
    """What one broker has sampled. The last value of each series belongs to `last_slot`."""

    last_slot: int
    series: dict[str, LagSeries]
