"""Finds what a log lost, by comparing its files with its checkpoint.

The checkpoint lists the segments that were flushed when it was written, with their sizes. A start that finds less
reports it, because something other than the broker deleted or truncated files. The broker removes a segment from the
checkpoint before it deletes or replaces the segment. So a crash never looks like a loss.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tidemill.streams.segments.checkpoint import Checkpoint


class Missing(NamedTuple):
    """One thing that a log had and no longer has."""

    offset: int
    """The first offset that may be lost. Everything before it exists."""
    found: str


def missing_segments(checkpoint: Checkpoint, sizes: Mapping[int, int]) -> list[Missing]:
    """Return every segment that is missing or too short. `sizes` has the file sizes by base offset."""
    notes = [*checkpoint.closed, checkpoint.active]
    ends = [*(note.base_offset for note in notes[1:]), checkpoint.end_offset]
    found = []
    for note, end in zip(notes, ends, strict=True):
        # With a recorded truncation, the last closed segment has no segment after it.
        wanted = note.size_bytes and (end < 0 or end > checkpoint.start_offset)
        size = sizes.get(note.base_offset)
        if not wanted or (size is not None and size >= note.size_bytes):
            continue
        offsets = f"segment {note.base_offset}" + (f" (offsets up to {end - 1})" if end > note.base_offset else "")
        how = "is missing" if size is None else f"has {size} of {note.size_bytes} bytes"
        found.append(Missing(max(note.base_offset, checkpoint.start_offset), f"{offsets} {how}"))
    if _lacks_cut_segment(checkpoint, sizes):
        found.append(Missing(checkpoint.start_offset, f"segment {checkpoint.active.base_offset} is missing"))
    return found


def _lacks_cut_segment(checkpoint: Checkpoint, sizes: Mapping[int, int]) -> bool:
    """Whether the segment of a recorded truncation is missing. The truncation leaves it, or an empty one after it."""
    base_offset = checkpoint.active.base_offset
    announced = checkpoint.cut_to > checkpoint.start_offset and base_offset >= 0
    return announced and not any(base_offset <= each <= checkpoint.cut_to for each in sizes)


def without_segments(checkpoint: Checkpoint, first_base: int, last_base: int) -> Checkpoint:
    """Return the checkpoint without the closed segments of a range, which are about to be replaced."""
    return checkpoint._replace(
        closed=tuple(note for note in checkpoint.closed if not first_base <= note.base_offset <= last_base)
    )
