"""A flush that fails closes the whole data directory, and the broker names the next step."""

import errno
import os
from pathlib import Path

import pytest
from tests.support.broker_worlds import batch_of, running

from tidemill.broker.topic_directories import CLEAN_MARKER
from tidemill.model.errors import KafkaStorageError
from tidemill.servers.http.broker_summary import health_of


def failing(_: int) -> None:
    raise OSError(errno.EIO, "Input/output error")


async def test_every_partition_refuses_and_the_broker_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as broker:
        await broker.topics.create("orders", partitions=5)
        await broker.view.partition("orders", 0).leader.append(batch_of(b"kept"), acks=-1)
        assert health_of(broker)["streams"]["reasons"] == []
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", failing)
            with pytest.raises(KafkaStorageError):
                await broker.view.partition("orders", 1).leader.append(batch_of(b"lost"), acks=-1)
        for index in range(5):
            with pytest.raises(KafkaStorageError):
                await broker.view.partition("orders", index).leader.append(batch_of(b"refused"), acks=1)
        [reason] = health_of(broker)["streams"]["reasons"]
        assert "orders-0, orders-1, orders-2 and 2 more" in reason
        assert "restart the broker" in reason
    assert not (tmp_path / CLEAN_MARKER).exists(), "what the disk holds is not known: the next start has to look"
    async with running(tmp_path) as broker:
        assert broker.view.partition("orders", 0).high_watermark == 1
        assert (await broker.view.partition("orders", 1).leader.append(batch_of(b"again"), acks=-1)).base_offset in {
            0,
            1,
        }
