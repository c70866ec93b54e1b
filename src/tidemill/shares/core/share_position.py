"""Where a share group is in one partition, as a broker sees it."""

from typing import NamedTuple

from tidemill.shares.core.in_flight import InFlight


class SharePosition(NamedTuple):
    """Where a group is in a partition. `in_flight` is known at the leader only; the end without a replica is not."""

    group_id: str
    topic: str
    partition: int
    start_offset: int | None
    end_offset: int | None
    lag: int | None
    in_flight: InFlight | None
    counts_lag: bool
    """Whether the lag of this broker is the one that counts; a second broker may know it, too."""
