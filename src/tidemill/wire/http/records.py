"""The documents of records. `tidemill consume --json` prints a `RecordLine` for each record."""

from typing import Annotated, Literal

import msgspec

from tidemill.wire.http.document import Document, Input
from tidemill.wire.http.topics import PartitionIndex

RECORD_ROWS = 50
RECORD_ROWS_MAX = 200
PATTERN_CHARS_MAX = 1_000
TIME_CHARS_MAX = 40
PAYLOAD_CHARS_MAX = 150_000
HEADERS_PRODUCED_MAX = 100
HEADER_NAME_CHARS_MAX = 1_000

PayloadFormat = Literal["auto", "json", "text", "hex", "base64", "avro", "protobuf"]
PatternText = Annotated[str, msgspec.Meta(max_length=PATTERN_CHARS_MAX)]
_Offset = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Blank = Literal[""]
"""What the form of a page sends for a field that is not filled in."""


class RecordHeader(Document, frozen=True, kw_only=True, omit_defaults=True):
    """One header. A name may be there several times."""

    name: str
    value: str | None
    value_base64: str | None = None
    """The bytes, where they are not text."""


class RecordLine(Document, frozen=True, kw_only=True, omit_defaults=True):
    """One record. `timestamp` is in milliseconds."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: str | None
    key_base64: str | None = None
    """The bytes, where they are not text."""
    value: str | None
    value_base64: str | None = None
    headers: list[RecordHeader]


class PayloadView(Document, frozen=True, kw_only=True):
    """A key or a value as it is shown."""

    format: Literal["null", "json", "text", "hex", "base64", "avro", "protobuf"]
    text: str
    bytes: int
    cut: bool
    """Whether only the beginning is shown."""
    schema_id: int | None = None
    note: str = ""
    """Why it is not shown in the format that the request names."""


class BatchFacts(Document, frozen=True, kw_only=True):
    """The batch that a record is in."""

    base_offset: int
    last_offset: int
    records: int
    bytes: int
    compression: str
    leader_epoch: int
    timestamp_type: Literal["create", "append"]
    """Whether the client or the broker has set the timestamps."""
    transactional: bool
    producer_id: int | None
    producer_epoch: int | None


class RecordRow(RecordLine, frozen=True, kw_only=True):
    """A record in the console. Long keys, values and headers are cut."""

    key_view: PayloadView
    value_view: PayloadView
    header_count: int
    bytes: int
    sequence: int | None
    transaction: Literal["none", "committed", "aborted", "open"]
    batch: BatchFacts


class UnreadableRange(Document, frozen=True, kw_only=True):
    """Records that cannot be read. Reading continues after them."""

    partition: int
    offset: int
    last_offset: int | None
    """Null if the broker cannot read on; then `resume` is a guess."""
    resume: int
    error: str


class ScanReport(Document, frozen=True, kw_only=True):
    """How far a request has looked."""

    records: int
    bytes: int
    milliseconds: int
    complete: bool
    """False if it stopped at a limit before the page was full."""
    limit: str | None
    unread_partitions: int
    """Partitions that it did not reach at all."""


class RecordPage(Document, frozen=True, kw_only=True):
    """Records of a topic, in the order of the request."""

    topic: str
    records: list[RecordRow]
    next: str | None
    """The position after the last record; null if nothing follows."""
    previous: str
    """The position before the first record, for a request with `back`."""
    unreadable: list[UnreadableRange]
    scan: ScanReport


class RecordSelection(Input, frozen=True, kw_only=True):
    """Where reading starts, and which records are returned."""

    partition: PartitionIndex | None = None
    offset: Annotated[_Offset, msgspec.Meta(description="A negative number counts back from the end.")] | None = None
    time: Annotated[
        str, msgspec.Meta(max_length=TIME_CHARS_MAX, description="Milliseconds, or a time such as 2026-11-16T10:00.")
    ] = ""
    key: PatternText = ""
    value: PatternText = ""
    header: Annotated[PatternText, msgspec.Meta(description="Part of NAME=VALUE.")] = ""
    match: Literal["substring", "regex"] = "substring"
    where: Annotated[PatternText, msgspec.Meta(description="A condition such as $.order.total > 100.")] = ""
    uncommitted: Annotated[bool, msgspec.Meta(description="Also open and aborted transactions.")] = False


class RecordQuery(RecordSelection, frozen=True, kw_only=True):
    """Which records are listed."""

    order: Literal["newest", "oldest"] = "newest"
    position: Annotated[str, msgspec.Meta(description="A position of an earlier page.")] = ""
    back: Annotated[bool, msgspec.Meta(description="The page before the position.")] = False
    rows: Annotated[int, msgspec.Meta(ge=1, le=RECORD_ROWS_MAX)] = RECORD_ROWS
    key_format: PayloadFormat = "auto"
    value_format: PayloadFormat = "auto"


class RecordPageQuery(Input, frozen=True, kw_only=True):
    """Which records the page of a topic shows. A field that is empty counts as one that is left out."""

    partition: PartitionIndex | _Blank | None = None
    offset: Annotated[_Offset | _Blank | None, msgspec.Meta(description="A negative number counts back.")] = None
    time: Annotated[str, msgspec.Meta(max_length=TIME_CHARS_MAX)] = ""
    last: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=2**62)] | _Blank | None,
        msgspec.Meta(description="The last records of each partition, from the oldest of them on."),
    ] = None
    key: PatternText = ""
    value: PatternText = ""
    header: PatternText = ""
    match: Literal["substring", "regex"] = "substring"
    where: PatternText = ""
    uncommitted: bool = False
    order: Literal["newest", "oldest"] = "newest"
    position: str = ""
    back: bool = False
    rows: Annotated[int, msgspec.Meta(ge=1, le=RECORD_ROWS_MAX)] = RECORD_ROWS
    key_format: PayloadFormat = "auto"
    value_format: PayloadFormat = "auto"
    live: Annotated[bool, msgspec.Meta(description="Follow the end of the topic.")] = False


class RecordExportQuery(RecordSelection, frozen=True, kw_only=True):
    """Which records are downloaded, in the order of partition and offset."""

    limit: Annotated[int, msgspec.Meta(ge=1, description="The most records.")] | None = None


class RecordTailQuery(Input, frozen=True, kw_only=True):
    """Which new records are sent."""

    partition: PartitionIndex | None = None
    key: PatternText = ""
    value: PatternText = ""
    header: PatternText = ""
    match: Literal["substring", "regex"] = "substring"
    where: PatternText = ""
    uncommitted: bool = False
    key_format: PayloadFormat = "auto"
    value_format: PayloadFormat = "auto"
    position: Annotated[str, msgspec.Meta(description="Continue here. Without it: at the end.")] = ""


class TailedRecords(Document, frozen=True, kw_only=True):
    """New records of a topic. The first document of a stream may have none: it says where the stream starts."""

    records: list[RecordRow]
    position: str
    """Where the next stream continues."""
    skipped: int
    """Offsets that were left out because records arrive faster than they are sent."""
    unreadable: list[UnreadableRange]


class RecordFormatQuery(Input, frozen=True, kw_only=True):
    """How one record is shown."""

    key_format: PayloadFormat = "auto"
    value_format: PayloadFormat = "auto"


class PayloadQuery(Input, frozen=True, kw_only=True):
    """Which part of a record is downloaded."""

    part: Literal["key", "value", "header"] = "value"
    header: Annotated[int, msgspec.Meta(ge=0, le=1_000_000, description="The place of the header.")] = 0


class PayloadInput(Input, frozen=True, kw_only=True):
    """A key or a value to write."""

    format: Literal["text", "json", "hex", "base64"] = "text"
    data: Annotated[str, msgspec.Meta(max_length=PAYLOAD_CHARS_MAX)]


class RecordHeaderInput(Input, frozen=True, kw_only=True):
    """A header to write."""

    name: Annotated[str, msgspec.Meta(max_length=HEADER_NAME_CHARS_MAX)]
    value: PayloadInput | None = None


class NewRecordInput(Input, frozen=True, kw_only=True):
    """A record to write. Without a partition the key chooses it. A null value deletes the key of a compacted topic."""

    partition: PartitionIndex | None = None
    key: PayloadInput | None = None
    value: PayloadInput | None
    headers: Annotated[list[RecordHeaderInput], msgspec.Meta(max_length=HEADERS_PRODUCED_MAX)] = msgspec.field(
        default_factory=list
    )


class WrittenRecord(Document, frozen=True, kw_only=True):
    """Where a record was written."""

    topic: str
    partition: int
    offset: int
