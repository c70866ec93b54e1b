"""What a partition asks of the log that keeps its batches, and what that log asks of a disk.

A `StreamLog` keeps batches in the order in which they were appended and gives them back byte for byte. It does not
know producers, transactions or readers. Its rules:

- `append` takes all of its batches or none; a `KafkaStorageError` leaves the log as it was before.
- `flush` covers everything that was appended when it was called. Once a flush has failed, every log on that disk is
  `failed` and every call raises: what the disk holds is not known any more, so nothing may be acknowledged.
- `read` gives whole batches, from the one that contains the offset on; where compaction left a hole, from the next
  one on.
- `save` keeps the partition's state beside the log, together with the end offset that the state is true for.

A `Disk` is the handful of file operations that segments use, so that a test can put a failing one in its place.
`aside` runs a call where it may block: on a thread for the real disk, in place for a simulated one.
"""

import errno
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from tidemill.model.errors import KafkaStorageError
from tidemill.model.topic_settings import TopicSettings
from tidemill.records.header import BatchHeader, Buffer
from tidemill.streams.core.retention import SegmentFacts

T = TypeVar("T")
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""How a system says that a disk, or somebody's share of it, is full."""
INLINE_BYTES_MAX = 256 * 1024
"""Bytes that a file or memory takes so fast that a thread would cost more."""


class Saved(NamedTuple):
    """The state that a partition left beside its log."""

    offset: int
    state: dict[str, Any]


class StoredBatch(NamedTuple):
    """A batch on its way out of the log."""

    header: BatchHeader
    batch: Buffer


class Rewritten(NamedTuple):
    """New batches for closed pieces of the log; `content` is the log's own affair."""

    base_offset: int
    content: Any


class FlushFailed(OSError):
    """The disk could not make bytes or names safe: what it holds is not known any more, and asking again lies."""


class StoreAway(KafkaStorageError):
    """What keeps the partition cannot be reached at the moment."""


def lacks_room(error: BaseException) -> bool:
    """Whether the disk is full, and nothing worse."""
    return isinstance(error, OSError) and error.errno in FULL and not isinstance(error, FlushFailed)


class StreamLog(Protocol):
    """The batches of one partition."""

    settings: TopicSettings

    @property
    def inline_bytes_max(self) -> int:
        """What `append` may be asked to write while the loop waits; more goes through `append_aside`."""
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
        """Whether what keeps the log was out of reach when it was last asked; it may come back."""
        ...

    @property
    def saved(self) -> Saved | None:
        """What the last `save` before this start left."""
        ...

    def append(self, batches: Sequence[Buffer], headers: Sequence[BatchHeader], now_ms: int) -> None:
        """Add batches whose headers carry their final offsets; the caller does not change the bytes any more."""
        ...

    async def append_aside(self, batches: Sequence[Buffer], headers: Sequence[BatchHeader], now_ms: int) -> None:
        """`append` for much at once: the loop goes on meanwhile. One call at a time."""
        ...

    async def flush(self) -> None:
        """Return when all that was appended before is safe from a power cut."""
        ...

    async def read(self, offset: int, end_offset: int, max_bytes: int, *, at_least_one: bool) -> list[Buffer]:
        """Batches from the one with `offset` on that begin below `end_offset`, together at most `max_bytes`."""
        ...

    def scan(self, offset: int) -> AsyncGenerator[StoredBatch, None]:
        """Every batch from the one with `offset` on."""
        ...

    def outline(self, offset: int) -> AsyncGenerator[StoredBatch, None]:
        """`scan` for who needs headers and markers: the bytes of other batches may be left out."""
        ...

    async def before_time(self, timestamp: int) -> int:
        """An offset at or before the first record with `timestamp` or later, near it."""
        ...

    def segments(self) -> list[SegmentFacts]:
        """The pieces of the log, oldest first; the last is being written."""
        ...

    async def roll(self, now_ms: int) -> None:
        """Close the piece being written and begin a new one."""
        ...

    async def trim(self, start_offset: int, state: dict[str, Any]) -> None:
        """Move the start for good, save, and drop what lies wholly before it."""
        ...

    async def truncate(self, end_offset: int) -> None:
        """Drop every batch that reaches to `end_offset` or beyond; it stays dropped after a power cut."""
        ...

    async def reset(self, offset: int) -> None:
        """Drop every batch and go on from `offset`, above or below; it stays so after a power cut."""
        ...

    async def rewrite(self, base_offset: int, end_offset: int, batches: AsyncIterator[Sequence[Buffer]]) -> Rewritten:
        """Write, as one piece, what is to stand in the place of the closed pieces between two offsets: compaction.

        It stands beside them until `swap` or `discard`.
        """
        ...

    async def swap(self, rewritten: Rewritten) -> None:
        """Put the new batches in the place of the old ones, unless those are gone; durable when this returns."""
        ...

    async def discard(self, rewritten: Rewritten) -> None:
        """Forget what was rewritten."""
        ...

    async def aside(self, call: Callable[[], T]) -> T:
        """Run a call that takes long, beside the loop if the log has threads."""
        ...

    async def sweep(self, now_ms: int, *, by_time: bool = True) -> None:
        """Do what has waited for its time: files that were removed a while ago go for good.

        With `by_time` false the clock is in doubt: what only waits for its time goes on waiting.
        """
        ...

    async def save(self, state: dict[str, Any]) -> None:
        """Flush, and keep `state` beside the log as true for the present end offset."""
        ...

    async def close(self) -> None:
        """Let go of all files; what was not flushed is left to the system."""
        ...

    async def delete(self) -> None:
        """Remove all that the log has stored."""
        ...


class LogStore(Protocol):
    """Where the logs of all partitions are."""

    @property
    def full(self) -> bool:
        """Whether batches of producers are refused because there is no room for them."""
        ...

    @property
    def missing(self) -> Sequence[str]:
        """What logs had at their last checkpoint and do not have now, one line each."""
        ...

    async def open(
        self,
        topic: str,
        index: int,
        settings: TopicSettings,
        *,
        topic_id: str = "",
        leader_epoch: int = 0,
        believe: bool = True,
        given_offset: int = 0,
    ) -> StreamLog:
        """The log of a partition, recovered if need be, new if there was none.

        Where several brokers could write a log, `leader_epoch` says who may, and `topic_id` tells a topic from one of
        the same name that was deleted. Unless `believe`, every batch is looked at, and damaged ones are set aside.
        Offsets below `given_offset` may have been given out: a log that misses files goes on behind them.
        """
        ...

    def lost_from(self, topic: str, index: int) -> int | None:
        """The first offset that an open log lost with files that were removed; None when it has lost nothing."""
        ...

    async def free_reserve(self) -> bool:
        """Free the room that is kept for the broker itself; whether there was some."""
        ...

    async def begin_at(self, topic: str, index: int, offset: int) -> None:
        """Make an empty log that goes on at `offset`, where there is no log yet."""
        ...

    async def close(self) -> None:
        """Let go of what the logs share."""
        ...


class Disk(Protocol):
    """File operations; paths are relative to the store, a file is known by the number that `open` gave."""

    def open(self, path: str, *, create: bool = False) -> int:
        """Open for reading and writing."""
        ...

    def close(self, file: int) -> None:
        """Let go of the file."""
        ...

    def size(self, path: str) -> int:
        """Bytes of the file; FileNotFoundError when there is none."""
        ...

    def write(self, file: int, buffers: Sequence[Buffer], position: int) -> None:
        """Write all buffers one after the other; after an OSError a part of them may be there."""
        ...

    def pread(self, file: int, size: int, position: int) -> bytes:
        """Bytes at `position`, fewer at the end of the file."""
        ...

    def pread_cached(self, file: int, size: int, position: int) -> Buffer | None:
        """`pread` when the system has the bytes in memory, else None."""
        ...

    def fdatasync(self, file: int) -> None:
        """Return when the file's bytes and size are safe; FlushFailed when they may never be."""
        ...

    def fsync_dir(self, path: str) -> None:
        """Return when the names in the folder are safe; FlushFailed when they may never be."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give the file another name, in place of what had it."""
        ...

    def truncate(self, file: int, size: int) -> None:
        """Cut the file."""
        ...

    def allocate(self, file: int, size: int) -> None:
        """Let the file have `size` bytes, zeros behind what it has, and the room for them."""
        ...

    def list(self, path: str) -> list[str]:
        """The names in a folder, sorted; none when there is no folder."""
        ...

    def make_dir(self, path: str) -> None:
        """Make the folder and those above it, safe when this returns."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file."""
        ...

    def remove_dir(self, path: str) -> None:
        """Remove an empty folder."""
        ...

    async def aside(self, call: Callable[[], T]) -> T:
        """Run a call that may block."""
        ...

    def shutdown(self) -> None:
        """End the threads, if there are any."""
        ...
