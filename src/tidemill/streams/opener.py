"""How partitions are opened: the log, then the state of producers and transactions that its batches tell."""

import asyncio
from random import random as uniform
from typing import Protocol

import structlog

from tidemill.model.errors import CorruptMessage
from tidemill.model.topic_settings import TopicSettings
from tidemill.streams.core.leader import Leader
from tidemill.streams.interface import LogStore, StreamLog
from tidemill.streams.maintenance import Random
from tidemill.streams.partition import Clock, Partition
from tidemill.streams.replay import replay

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
    """A partition over a log that has been opened; producers and transactions are as the log says."""
    leader = Leader(leader_epoch)
    await replay(log, leader, clock())
    leader.epoch = max(leader_epoch, leader.epochs.last)
    return Partition(log, topic, index, leader, clock, one_cleaning, random)


class OpenPartition(Protocol):
    """What a broker opens partitions with."""

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
        """The partition as it was left, or a new one; behind `given_offset` when files of it are missing."""


def opener(store: LogStore, clock: Clock, random: Random = uniform) -> OpenPartition:
    """What opens the partitions of a store; `random` gives numbers from 0 to 1."""

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
            LOGGER.error("damage found; the whole log is checked", topic=topic, partition=index, error=str(error))
            return await open_log(topic, index, settings, leader_epoch, topic_id, given_offset, believe=False)

    return open_one
