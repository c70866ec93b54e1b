"""The logs of all partitions of a broker."""

from collections.abc import Sequence
from typing import Protocol

from tidemill.model.topic_settings import TopicSettings
from tidemill.streams.interface.log import StreamLog


class LogStore(Protocol):
    """Opens the logs of all partitions."""

    @property
    def full(self) -> bool:
        """Whether batches of producers are rejected because the disk is full."""
        ...

    @property
    def missing(self) -> Sequence[str]:
        """Files that logs had at their last checkpoint and that are missing now, one line each."""
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
        """The log of a partition: recovered if necessary, new if there was none.

        Where several brokers could write a log, only the one with the newest `leader_epoch` may. `topic_id`
        distinguishes a topic from a deleted one of the same name. Unless `believe`, every batch is checked, and damaged
        ones are moved away. Offsets below `given_offset` may be in use: a log with missing files continues behind them.
        """
        ...

    def lost_from(self, topic: str, index: int) -> int | None:
        """The first offset that an open log lost with files that were removed; None when it has lost nothing."""
        ...

    async def free_reserve(self) -> bool:
        """Free the space that is reserved for the broker itself; whether there was some."""
        ...

    async def begin_at(self, topic: str, index: int, offset: int) -> None:
        """Create an empty log that starts at `offset`, where there is no log yet."""
        ...

    async def close(self) -> None:
        """Close what the logs share."""
        ...
