"""Opens partitions: the log first, then the producer and transaction state that its batches describe."""

import asyncio
from collections.abc import Callable
from random import random as uniform
from typing import Protocol

import structlog

from tidemill.model.errors import CorruptMessage
from tidemill.model.topic_settings import TopicSettings
from tidemill.streams.core.leader import Leader
from tidemill.streams.interface import LogStore, StreamLog
from tidemill.streams.maintenance import Random
from tidemill.streams.partition import Partition
from tidemill.streams.replay import replay

Clock = Callable[[], int]

LOGGER = structlog.get_logger(__name__)


async def open_partition(
    log: StreamLog,
    topic: str,
    index: int,
    *,
    clock: Clock,
    leader_epoch: int,
    one_cleaning: asyncio.Lock,
    random: Random,
) -> Partition:
    """Create a partition over an open log. Producers and transactions are rebuilt from the log."""
    leader = Leader(leader_epoch)
    await replay(log, leader, clock())
    leader.epoch = max(leader_epoch, leader.epochs.last)
    return Partition(log, topic, index, leader, clock, one_cleaning, random)


class OpenPartition(Protocol):
    """The call with which a broker opens partitions."""

    async def __call__(
        self,
        topic: str,
        index: int,
        settings: TopicSettings,
        leader_epoch: int,
        topic_id: str = "",
        *,
        given_offset: int = 0,
    ) -> Partition:
        """Open an existing or new partition. If files are missing, the log continues after `given_offset`."""


def opener(store: LogStore, clock: Clock, random: Random = uniform) -> OpenPartition:
    """Return the call that opens the partitions of a store. `random` returns numbers from 0 to 1."""

    one_cleaning = asyncio.Lock()

    async def open_log(
        topic: str,
        index: int,
        settings: TopicSettings,
        leader_epoch: int,
        topic_id: str,
        given_offset: int,
        *,
        believe: bool,
    ) -> Partition:
        log = await store.open(
            topic,
            index,
            settings,
            topic_id=topic_id,
            leader_epoch=leader_epoch,
            believe=believe,
            given_offset=given_offset,
        )
        try:
            return await open_partition(
                log, topic, index, clock=clock, leader_epoch=leader_epoch, one_cleaning=one_cleaning, random=random
            )
        except BaseException:
            await log.close()
            raise

    async def open_one(
        topic: str,
        index: int,
        settings: TopicSettings,
        leader_epoch: int,
        topic_id: str = "",
        *,
        given_offset: int = 0,
    ) -> Partition:
        try:
            return await open_log(topic, index, settings, leader_epoch, topic_id, given_offset, believe=True)
        except CorruptMessage as error:
            LOGGER.error("damaged_log_rechecked", topic=topic, partition=index, error=str(error))
            return await open_log(topic, index, settings, leader_epoch, topic_id, given_offset, believe=False)

    return open_one
