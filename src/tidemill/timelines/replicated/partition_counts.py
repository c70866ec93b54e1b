"""What one replica of a partition of the timelines has done since its broker started, and where it is now."""

from dataclasses import dataclass, field
from typing import NamedTuple

from tidemill.model.metrics import Histogram

DAMAGED, DIVERGED = "damaged", "diverged"
"""Why an index was built again: its file could not be read, or the journal does not continue it."""


@dataclass(slots=True)
class TimelinePartitionCounts:
    """The counts of one replica."""

    appends: Histogram = field(default_factory=Histogram)
    """How long appends took until the entries were durable."""
    append_failures: dict[str, int] = field(default_factory=dict)
    """By the class of the error."""
    follow_failures: int = 0
    """How often following the journal failed, and was tried again."""
    rebuilds: dict[str, int] = field(default_factory=dict)
    """By reason."""
    snapshots: Histogram = field(default_factory=Histogram)
    """How long it took to write everything to the end of the journal and to trim it."""

    def append_failed(self, error: str) -> None:
        """Count a failed append."""
        self.append_failures[error] = self.append_failures.get(error, 0) + 1

    def rebuilt(self, reason: str) -> None:
        """Count an index that is built again."""
        self.rebuilds[reason] = self.rebuilds.get(reason, 0) + 1


class TimelineReplica(NamedTuple):
    """One replica on this broker."""

    partition: int
    is_serving: bool
    """Whether it serves calls as the leader."""
    journal_bytes: int
    position: int
    """The offset up to which the index has everything."""
    lag: int
    """Committed entries of the journal that the index lacks."""
    counts: TimelinePartitionCounts
