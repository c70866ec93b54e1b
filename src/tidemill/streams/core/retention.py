"""Decides which segments a partition may delete, and when it starts a new one.

Retention deletes whole segments, oldest first.

- By time: a segment expires when its newest record is older than `retention.ms`. If the active segment has expired too,
  a new one is started first. Records without a timestamp (-1) are as old as the start of the next segment.
- By size: the oldest segments are deleted as long as at least `retention.bytes` stay.
- Everything below the log's start (moved by DeleteRecords) is deleted.

While the wall clock is not trusted, nothing is deleted by time.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tidemill.model.topic_settings import TopicSettings


class SegmentFacts(NamedTuple):
    """The facts of a segment that retention needs. The last segment of a sequence is the active one."""

    base_offset: int
    next_offset: int
    size_bytes: int
    largest_timestamp: int
    first_append_ms: int


def retained_start(
    segments: Sequence[SegmentFacts], settings: TopicSettings, start_offset: int, now_ms: int, *, by_time: bool = True
) -> int:
    """Return the new start offset: `start_offset`, or the end of the last segment to delete."""
    if not settings.deleted:
        return start_offset
    old = _expired(segments, settings.retention_ms, now_ms) if by_time else 0
    keep = max(old, _oversize(segments, settings.retention_bytes))
    return max(start_offset, segments[keep - 1].next_offset) if keep else start_offset


def roll_due(active: SegmentFacts, settings: TopicSettings, now_ms: int, jitter: float) -> bool:
    """Whether the active segment is old enough to be closed. `jitter` (0 to 1) reduces that age by its share."""
    age_ms = settings.segment_ms - int(min(settings.segment_jitter_ms, settings.segment_ms) * jitter)
    # The active segment is not compacted, so the maximum compaction lag also limits its age.
    limit_ms = min(age_ms, settings.max_compaction_lag_ms) if settings.compacted else age_ms
    return active.size_bytes > 0 and now_ms - active.first_append_ms >= limit_ms


def _expired(segments: Sequence[SegmentFacts], retention_ms: int, now_ms: int) -> int:
    if retention_ms < 0:
        return 0
    count = 0
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if segment.size_bytes == 0 or now_ms - _newest_ms(segment, following, now_ms) <= retention_ms:
            break
        count += 1
    return count


def _newest_ms(segment: SegmentFacts, following: SegmentFacts | None, now_ms: int) -> int:
    """Return the timestamp of a segment's newest record, or the latest time at which it was written."""
    if segment.largest_timestamp >= 0:
        return segment.largest_timestamp
    return following.first_append_ms or now_ms if following is not None else now_ms


def _oversize(segments: Sequence[SegmentFacts], retention_bytes: int) -> int:
    if retention_bytes < 0:
        return 0
    excess = sum(segment.size_bytes for segment in segments) - retention_bytes
    count = 0
    for segment in segments[:-1]:
        excess -= segment.size_bytes
        if excess < 0:
            break
        count += 1
    return count
