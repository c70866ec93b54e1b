"""Settings of topics and brokers through the Kafka server, in every version."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.kafka_server import request_part
from tests.unit.servers.kafka.admin_client import VERSIONS, connected

from tidemill.model import broker_settings, topic_settings

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
