"""Settings of topics and brokers through the Kafka server, in every version."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka_server import request_part
from tests.unit.servers.kafka.admin_client import VERSIONS, connected

from tidemill.model import broker_settings, group_settings, topic_settings

pytestmark = pytest.mark.event_loop("uvloop")


def resource(key: int, version: int, kind: int, name: str, **fields: Any) -> Any:
    part = "DescribeConfigsResource" if key == 32 else "AlterConfigsResource"
    return request_part(key, version, part, resource_type=kind, resource_name=name, **fields)


async def test_settings_are_described_in_every_version(tmp_path: Path) -> None:
    async with connected(tmp_path, {"log.segment.bytes": "100000"}) as (client, server):
        await server.broker.topics.create("t", overrides={"retention.ms": "5"})
        for version in VERSIONS[32]:
            asked = tuple(
                resource(32, version, kind, name, configuration_keys=None)
                for kind, name in ((2, "t"), (4, "0"), (2, "unknown"), (4, "9"), (8, "0"), (4, ""))
            )
            reported = await client.ask(32, version, resources=asked, include_synonyms=True, include_documentation=True)
            assert [each.error_code for each in reported.results] == [0, 0, 3, 42, 42, 0]
            topic = {config.name: config for config in reported.results[0].configs}
            assert set(topic) == set(topic_settings.SETTINGS)
            assert (topic["retention.ms"].value, topic["retention.ms"].config_source) == ("5", 1)
            assert topic["segment.bytes"].config_source == 4  # by the broker's log.segment.bytes
            assert topic["segment.bytes"].synonyms[0].name == "log.segment.bytes"
            assert topic["flush.ms"].config_source == 5
            node = {config.name: config for config in reported.results[1].configs}
            assert {name for name in node if name in broker_settings.SETTINGS} == set(broker_settings.SETTINGS)
            facts = {name: config.value for name, config in node.items() if name not in broker_settings.SETTINGS}
            assert json.loads(facts.pop("tidemill.load") or "")["level"] == "normal"
            assert facts == {
                "broker.rack": "",
                "node.id": "0",
                "process.roles": "overseer,carrier",
                "tidemill.clock": "",
                "tidemill.consumers": "",
                "tidemill.grpc": "",
                "tidemill.replica.lag": "",
                "tidemill.state": "healthy",
                "tidemill.state.reason": "",
            }
            assert (node["log.segment.bytes"].value, node["log.segment.bytes"].read_only) == ("100000", True)
            if version >= 3:
                assert topic["retention.ms"].documentation
                assert topic["retention.ms"].config_type == 5
        few = resource(32, 4, 2, "t", configuration_keys=("flush.ms", "nothing"))
        reported = await client.ask(32, 4, resources=(few,))
        assert [config.name for config in reported.results[0].configs] == ["flush.ms"]
        assert reported.results[0].configs[0].synonyms == ()


async def test_settings_are_altered(tmp_path: Path) -> None:
    async with connected(tmp_path) as (client, server):
        await server.broker.topics.create("t", overrides={"retention.ms": "5"})

        def overrides() -> dict[str, str]:
            topic = server.broker.view.topic("t")
            assert topic is not None
            return dict(topic.overrides)

        async def change(*changes: tuple[str, int, str | None], name: str = "t", kind: int = 2) -> int:
            codes = set()
            for version in VERSIONS[44]:
                configs = tuple(
                    request_part(44, version, "AlterableConfig", name=key, config_operation=operation, value=value)
                    for key, operation, value in changes
                )
                reported = await client.ask(
                    44, version, resources=(resource(44, version, kind, name, configs=configs),)
                )
                codes.add(int(reported.responses[0].error_code))
            assert len(codes) == 1
            return codes.pop()

        assert await change(("segment.bytes", 0, "1000")) == 0
        assert overrides() == {"retention.ms": "5", "segment.bytes": "1000"}
        assert server.broker.view.partition("t", 0).settings.segment_bytes == 1000
        assert await change(("retention.ms", 1, None), ("cleanup.policy", 2, "compact")) == 0
        assert overrides() == {"segment.bytes": "1000", "cleanup.policy": "delete,compact"}
        assert await change(("cleanup.policy", 3, "delete")) == 0
        assert overrides()["cleanup.policy"] == "compact"
        before = overrides()
        assert await change(("segment.bytes", 2, "5")) == 40
        assert await change(("segment.bytes", 0, None)) == 42
        assert await change(("segment.bytes", 9, "5")) == 42
        assert await change(("nothing", 0, "5")) == 40
        assert await change(("segment.bytes", 0, "5"), ("segment.bytes", 0, "6")) == 42
        assert await change(("segment.bytes", 0, "500"), name="unknown") == 3
        assert await change(("num.partitions", 0, "5"), name="0", kind=4) == 42
        assert overrides() == before
        for version in VERSIONS[33]:
            configs = (request_part(33, version, "AlterableConfig", name="flush.ms", value=str(version + 1)),)
            asked = resource(33, version, 2, "t", configs=configs)
            reported = await client.ask(33, version, resources=(asked,), validate_only=True)
            assert reported.responses[0].error_code == 0
            assert overrides().get("flush.ms") != str(version + 1)
            reported = await client.ask(33, version, resources=(asked,))
            assert overrides() == {"flush.ms": str(version + 1)}


async def test_an_appended_list_value_extends_the_default_of_the_broker(tmp_path: Path) -> None:
    async with connected(tmp_path, {"log.cleanup.policy": "compact"}) as (client, server):
        await server.broker.topics.create("t")
        change = request_part(44, 1, "AlterableConfig", name="cleanup.policy", config_operation=2, value="delete")
        await client.ask(44, 1, resources=(resource(44, 1, 2, "t", configs=(change,)),))
        topic = server.broker.view.topic("t")
        assert topic is not None
        assert dict(topic.overrides) == {"cleanup.policy": "compact,delete"}


async def test_settings_of_groups_are_altered_listed_and_described(tmp_path: Path) -> None:
    async with connected(tmp_path, {"group.share.session.timeout.ms": "30000"}) as (client, server):

        async def change(name: str, *changes: tuple[str, int, str | None]) -> int:
            configs = tuple(
                request_part(44, 1, "AlterableConfig", name=key, config_operation=operation, value=value)
                for key, operation, value in changes
            )
            reported = await client.ask(44, 1, resources=(resource(44, 1, 32, name, configs=configs),))
            return int(reported.responses[0].error_code)

        async def values(name: str) -> dict[str, tuple[str, int]]:
            asked = resource(32, 4, 32, name, configuration_keys=None)
            reported = await client.ask(32, 4, resources=(asked,))
            assert reported.results[0].error_code == 0
            return {config.name: (config.value, config.config_source) for config in reported.results[0].configs}

        assert (
            await change("g", ("consumer.session.timeout.ms", 0, "20000"), ("share.auto.offset.reset", 0, "earliest"))
            == 0
        )
        found = await values("g")
        assert set(found) == set(group_settings.SETTINGS)
        assert found["consumer.session.timeout.ms"] == ("20000", 8)
        assert found["share.session.timeout.ms"] == ("30000", 4)
        assert found["share.delivery.count.limit"] == ("5", 5)
        assert await change("g", ("share.auto.offset.reset", 1, None)) == 0
        assert (await values("g"))["share.auto.offset.reset"] == ("latest", 5)
        for wrong in (
            ("share.auto.offset.reset", 0, "by_duration:1 day"),
            ("consumer.session.timeout.ms", 0, "5000"),
            ("share.colour", 0, "red"),
            ("tidemill.share.retry.backoff.ms", 0, "1s"),
            ("share.delivery.count.limit", 0, "0"),
        ):
            assert await change("g", wrong) == 40
        assert await change("", ("share.delivery.count.limit", 0, "3")) == 42
        for version in VERSIONS[74]:
            listed = await client.ask(74, version)
            expected = [] if version == 0 else [(2, name) for name in sorted(server.broker.metadata.image.by_name)]
            expected += [] if version == 0 else [(4, "0"), (8, "0"), (32, "g")]
            assert [(each.resource_type, each.resource_name) for each in listed.config_resources] == (
                expected if version else []
            )
        only = await client.ask(74, 1, resource_types=(32,))
        assert [each.resource_name for each in only.config_resources] == ["g"]
        assert (await client.ask(74, 1, resource_types=(5,))).error_code == 35
        assert await change("g", ("consumer.session.timeout.ms", 1, None)) == 0
        assert (await client.ask(74, 1, resource_types=(32,))).config_resources == ()
