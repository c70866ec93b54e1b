"""A node from settings to ready and back, on every kind of address."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.addresses import speaks_ipv6

from tidemill.app.node import Node, ServerUnavailable
from tidemill.groups.coordinator import GroupCoordinator
from tidemill.model.broker_settings import parse
from tidemill.model.errors import InvalidConfig
from tidemill.model.timeline_errors import StoreUnavailable
from tidemill.servers.kafka.listener import KafkaServer
from tidemill.settings import Settings, load


def settings_of(folder: Path, **flags: str) -> Settings:
    servers = {"kafka": "127.0.0.1:0", "grpc": "none", "http": "none"}
    return load({"data-dir": str(folder / "data"), **servers, **flags})


ADDRESSES = [
    ("127.0.0.1:0", "", "127.0.0.1"),
    ("0.0.0.0:0", "", "localhost"),
    ("0.0.0.0:0", "broker.example:0", "broker.example"),
]
if speaks_ipv6():
    ADDRESSES.append(("[::]:0", "", "localhost"))


@pytest.mark.parametrize(("kafka", "advertise", "reported"), ADDRESSES)
async def test_responses_to_clients(tmp_path: Path, kafka: str, advertise: str, reported: str) -> None:
    settings = settings_of(tmp_path, kafka=kafka, advertise=advertise)
    node = Node(replace(settings, broker=parse({"allow.anonymous": "true"})))
    await node.start()
    assert node.kafka is not None
    assert [(broker.host, broker.port) for broker in node.broker.view.brokers()] == [(reported, node.kafka.port)]
    await node.stop()


async def test_an_advertised_port_may_differ(tmp_path: Path) -> None:
    node = Node(settings_of(tmp_path, advertise="broker.example:19092"))
    await node.start()
    assert node.broker.view.brokers()[0][1:3] == ("broker.example", 19092)
    await node.stop()


async def test_a_start_that_fails_lets_go_of_everything(tmp_path: Path) -> None:
    first = Node(settings_of(tmp_path))
    await first.start()
    second = Node(settings_of(tmp_path / "other", kafka=str(first.kafka)))
    with pytest.raises(ServerUnavailable, match="is in use"):
        await second.start()
    third = Node(settings_of(tmp_path / "other"))
    await third.start()
    await third.stop()
    await first.stop()


async def test_an_invalid_address_of_a_store_is_reported(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, grpc="127.0.0.1:0", timelines="postgresql://ann:secret@host:port/shop")
    with pytest.raises(InvalidConfig, match=r"postgresql://host:port/shop is not a PostgreSQL address: .*--timelines"):
        await Node(settings).start()


async def test_a_store_that_does_not_answer_is_named_without_its_password(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, grpc="127.0.0.1:0", timelines="postgresql://ann:secret@127.0.0.1:1/shop")
    with pytest.raises(
        StoreUnavailable, match=r"check that \S+127.0.0.1:1/shop runs and that --timelines is correct"
    ) as raised:
        await Node(settings).start()
    assert "secret" not in str(raised.value)


async def test_a_node_without_servers(tmp_path: Path) -> None:
    node = Node(settings_of(tmp_path, kafka="none"))
    await node.start()
    assert node.ready_line == "tidemill ready kafka=none grpc=none http=none"
    await node.broker.topics.create("orders")
    await node.stop()


async def test_members_that_wait_are_answered_before_the_server_waits_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    release, leave = GroupCoordinator.close, KafkaServer.close

    async def noted_release(self: GroupCoordinator) -> None:
        order.append("release")
        await release(self)

    async def noted_close(self: KafkaServer) -> None:
        order.append("close")
        await leave(self)

    monkeypatch.setattr(GroupCoordinator, "close", noted_release)
    monkeypatch.setattr(KafkaServer, "close", noted_close)

    node = Node(settings_of(tmp_path))
    await node.start()
    await node.stop()
    assert order == ["release", "close", "release"]


async def test_the_clock_is_compared_with_old_files_before_the_start_writes_them(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    node = Node(settings)
    await node.start()
    await node.stop()
    (settings.data_dir / "clock.json").unlink()
    with (settings.data_dir / "coordination.journal").open("ab") as journal:
        journal.write(b"a torn line, which the next start cuts off")
    before_s = time.time() - 30 * 86_400
    for path in settings.data_dir.rglob("*"):
        os.utime(path, (before_s, before_s))
    await node.start()
    assert node.broker.clock is not None
    assert node.broker.clock.kinds() == ("later",)
    await node.stop()
