"""The log of a partition, cut by role: append and read, maintain, rewrite.

A `StreamLog` keeps batches in the order in which they were appended and returns them byte for byte. It does not know
producers, transactions or readers. Its rules:

- `append` stores all of its batches or none; a `KafkaStorageError` leaves the log as it was before.
- `flush` covers everything that was appended when it was called. Once a flush has failed, every log on that disk is
  `failed` and every call raises an error: the content of the disk is unknown, so nothing may be acknowledged.
- `read` returns whole batches, from the one that contains the offset on; after a gap of compaction, from the next one.
- `save` keeps the state of the partition next to the log, together with the end offset that the state is true for.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from tidemill.model.topic_settings import TopicSettings
from tidemill.records.header import BatchHeader, Buffer
from tidemill.streams.core.retention import SegmentFacts

T = TypeVar("T")
INLINE_BYTES_MAX = 256 * 1024
"""Bytes that a file or memory takes so fast that a thread would cost more."""


class Saved(NamedTuple):
    """The state that a partition saved next to its log."""

    offset: int
    state: dict[str, Any]


class StoredBatch(NamedTuple):
    """A batch read from the log."""

    header: BatchHeader
    batch: Buffer


class Rewritten(NamedTuple):
    """New batches for closed segments of the log; only the log knows what `content` is."""

    base_offset: int
    content: Any


class AppendLog(Protocol):
    """Append and read."""

    settings: TopicSettings

    @property
    def inline_bytes_max(self) -> int:
        """Bytes that `append` may write on the event loop; larger batches use `append_aside`."""
        ...

    @property
    def start_offset(self) -> int:
        """The first offset that may be read."""
        ...

    @property
    def end_offset(self) -> int:
        """The offset that the next batch gets."""
        ...

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""
        ...

    @property
    def failed(self) -> BaseException | None:
        """Why the log takes no more calls."""
        ...

    @property
    def away(self) -> bool:
        """Whether the storage of the log could not be reached at the last call; it may recover."""
        ...

    @property
    def saved(self) -> Saved | None:
        """The state of the last `save` before this start."""
        ...

    def append(self, batches: Sequence[Buffer], headers: Sequence[BatchHeader], now_ms: int) -> None:
        """Add batches whose headers carry their final offsets; the caller must not change the bytes afterwards."""
        ...

    async def append_aside(self, batches: Sequence[Buffer], headers: Sequence[BatchHeader], now_ms: int) -> None:
        """`append` in a thread, for large batches. One call at a time."""
        ...

    async def flush(self) -> None:
        """Return when everything appended before is on disk."""
        ...

    async def read(self, offset: int, end_offset: int, max_bytes: int, *, at_least_one: bool) -> list[Buffer]:
        """Batches from the one with `offset` on that begin below `end_offset`, together at most `max_bytes`."""
        ...

    def scan(self, offset: int) -> AsyncGenerator[StoredBatch, None]:
        """Every batch from the one with `offset` on."""
        ...

    def outline(self, offset: int) -> AsyncGenerator[StoredBatch, None]:
        """`scan` for readers of headers and markers: the bytes of other batches may be missing."""
        ...

    async def before_time(self, timestamp: int) -> int:
        """An offset at or before the first record with `timestamp` or later, near it."""
        ...


class MaintainedLog(AppendLog, Protocol):
    """Segments, retention, truncation and checkpoints."""

    def segments(self) -> list[SegmentFacts]:
        """The segments of the log, oldest first; the last one is being written."""
        ...

    async def roll(self, now_ms: int) -> None:
        """Close the segment that is being written and start a new one."""
        ...

    async def trim(self, start_offset: int, state: dict[str, Any]) -> None:
        """Move the start durably, save, and drop the segments before it."""
        ...

    async def truncate(self, end_offset: int) -> None:
        """Drop every batch that reaches `end_offset` or beyond; durable when this returns."""
        ...

    async def reset(self, offset: int) -> None:
        """Drop every batch and continue at `offset`, higher or lower; durable when this returns."""
        ...

    async def sweep(self, now_ms: int, *, by_time: bool = True) -> None:
        """Delete files that were removed a while ago.

        With `by_time` false the clock is in doubt: files that only wait for their time stay.
        """
        ...

    async def save(self, state: dict[str, Any]) -> None:
        """Flush, and keep `state` next to the log, valid for the current end offset."""
        ...

    async def close(self) -> None:
        """Close all files without a flush."""
        ...

    async def delete(self) -> None:
        """Delete everything that the log has stored."""
        ...


class RewritableLog(AppendLog, Protocol):
    """Compaction: closed segments are replaced by rewritten ones."""

    def segments(self) -> list[SegmentFacts]:
        """The segments of the log, oldest first; the last one is being written."""
        ...

    async def rewrite(self, base_offset: int, end_offset: int, batches: AsyncIterator[Sequence[Buffer]]) -> Rewritten:
        """Write one segment that replaces the closed segments between two offsets.

        Both exist until `swap` or `discard`.
        """
        ...

    async def swap(self, rewritten: Rewritten) -> None:
        """Replace the old segments by the rewritten one, unless they were deleted; durable when this returns."""
        ...

    async def discard(self, rewritten: Rewritten) -> None:
        """Delete the rewritten segment."""
        ...

    async def aside(self, call: Callable[[], T]) -> T:
        """Run a long call, in a thread if the log has threads."""
        ...


class StreamLog(MaintainedLog, RewritableLog, Protocol):
    """The batches of one partition."""
