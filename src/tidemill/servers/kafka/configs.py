"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources: settings of topics, groups, the broker.

The value of a topic setting comes from the topic, from the broker's default for it, or from the built-in default; that
of a group setting likewise. Settings of topics and groups can be altered. Broker settings are set at start and are
read-only here. One name is an operation and not a setting: `tidemill.clock.accept=true`, with which an operator
confirms the broker's wall clock.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tidemill.broker.broker import BrokerNode
from tidemill.cluster.core.broker_load import encode_load
from tidemill.cluster.core.image import Topic
from tidemill.model import group_settings, topic_settings
from tidemill.model.broker_settings import TOPIC_SETTING_OF
from tidemill.model.errors import (
    InvalidConfig,
    InvalidRequest,
    TidemillError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from tidemill.model.topic_settings import Setting, SettingKind
from tidemill.model.topics import check_topic_name
from tidemill.replication.lag import encode_lags, worst_lags
from tidemill.security.core.resources import Operation, ResourceType
from tidemill.servers.kafka.api import Call, Response, error_code, error_message

if TYPE_CHECKING:
    from kio.schema.alter_configs.v2.request import AlterConfigsRequest
    from kio.schema.alter_configs.v2.response import AlterConfigsResponse
    from kio.schema.describe_configs.v4.request import DescribeConfigsRequest
    from kio.schema.describe_configs.v4.response import DescribeConfigsResponse
    from kio.schema.incremental_alter_configs.v1.request import IncrementalAlterConfigsRequest
    from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse
    from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
    from kio.schema.list_config_resources.v1.response import ListConfigResourcesResponse

TOPIC = 2
BROKER = 4
GROUP = 32
_LOGGER, _CLIENT_METRICS = 8, 16
_CONFIG_TYPES = {TOPIC, BROKER, _LOGGER, _CLIENT_METRICS, GROUP}
"""The types of resources that Kafka has settings for; loggers of brokers and client metrics have none here."""
_SUPPORTED = "use 2 (topic), 4 (broker) or 32 (group)"
GROUP_LENGTH_MAX = 4_096
FROM_TOPIC = 1
FROM_BROKER = 4
FROM_DEFAULT = 5
FROM_GROUP = 8
SET, DELETE, APPEND, SUBTRACT = range(4)
CLOCK, ACCEPT_CLOCK = "tidemill.clock", "tidemill.clock.accept"
_BROKER_SETTING_OF = {topic_name: broker_name for broker_name, topic_name in TOPIC_SETTING_OF.items()}


class Synonym(NamedTuple):
    """One place that gives the setting a value."""

    name: str
    value: str
    source: int


class ConfigEntry(NamedTuple):
    """A setting with the places that give it a value, the one that counts first."""

    setting: Setting
    synonyms: list[Synonym]
    read_only: bool

    @property
    def value(self) -> str:
        """The value in force."""
        return self.synonyms[0].value

    @property
    def source(self) -> int:
        """Where the value in force comes from."""
        return self.synonyms[0].source


def topic_listing(broker: BrokerNode, topic: Topic) -> list[ConfigEntry]:
    """Every setting of a topic."""
    defaults = broker.settings.topic_defaults
    entries = []
    for name, setting in topic_settings.SETTINGS.items():
        synonyms = [Synonym(name, topic.overrides[name], FROM_TOPIC)] if name in topic.overrides else []
        if name in defaults:
            synonyms.append(Synonym(_BROKER_SETTING_OF[name], defaults[name], FROM_BROKER))
        synonyms.append(Synonym(_BROKER_SETTING_OF.get(name, name), setting.default, FROM_DEFAULT))
        entries.append(ConfigEntry(setting, synonyms, read_only=False))
    return entries


def group_listing(broker: BrokerNode, group_id: str) -> list[ConfigEntry]:
    """Every setting of a group. A group has settings also before it exists."""
    given, defaults = broker.group_overrides.overrides(group_id), broker.group_overrides.defaults
    entries = []
    for name, setting in group_settings.SETTINGS.items():
        synonyms = [Synonym(name, given[name], FROM_GROUP)] if name in given else []
        if name in defaults:
            synonyms.append(Synonym(group_settings.BROKER_SETTING_OF[name], defaults[name], FROM_BROKER))
        synonyms.append(Synonym(group_settings.BROKER_SETTING_OF.get(name, name), setting.default, FROM_DEFAULT))
        entries.append(ConfigEntry(setting, synonyms, read_only=False))
    return entries


def broker_listing(broker: BrokerNode) -> list[ConfigEntry]:
    """Every setting of the broker."""
    entries = []
    for listed in broker.settings.listed():
        name = listed.setting.name
        synonyms = [Synonym(name, listed.value, FROM_BROKER)] if listed.overridden else []
        synonyms.append(Synonym(name, listed.setting.default, FROM_DEFAULT))
        entries.append(ConfigEntry(listed.setting, synonyms, read_only=True))
    return [*entries, *_identity_listing(broker)]


def _identity_listing(broker: BrokerNode) -> list[ConfigEntry]:
    """The identity and state of the broker in its cluster, under Kafka's names where Kafka has one."""
    mine = broker.membership.registration
    facts = {
        "broker.rack": ("Rack or zone of this broker.", mine.rack or ""),
        "node.id": ("Number of this broker.", str(mine.node_id)),
        "process.roles": ("Roles of this broker: overseer, carrier or both.", ",".join(mine.roles)),
        CLOCK: ("Whether its wall clock is trusted, as JSON.", _clock(broker)),
        "tidemill.consumers": (
            "Consumers of timelines that it serves.",
            ",".join(f"{name}={count}" for name, count in sorted(mine.consumers.items())),
        ),
        "tidemill.load": ("Its measured load, as JSON.", encode_load(broker.loads.own).decode()),
        "tidemill.replica.lag": (
            "Followers of the partitions that it leads, with their lag in records and in milliseconds.",
            encode_lags(worst_lags(broker.partitions)),
        ),
        "tidemill.grpc": ("Address of its gRPC server.", str(mine.grpc or "")),
        "tidemill.state": ("healthy, degraded or inactive.", mine.state),
        "tidemill.state.reason": ("Why it is not healthy.", mine.reason),
    }
    return [
        ConfigEntry(Setting(name, SettingKind.STRING, "", doc), [Synonym(name, value, FROM_BROKER)], read_only=True)
        for name, (doc, value) in facts.items()
    ]


def _clock(broker: BrokerNode) -> str:
    return "" if broker.clock is None else json.dumps(broker.clock.status(), separators=(",", ":"))


async def describe_configs(
    call: Call["DescribeConfigsResponse"], request: "DescribeConfigsRequest"
) -> "DescribeConfigsResponse":
    """The settings of topics and brokers, with default, source and meaning."""
    results = []
    seen: set[tuple[int, str]] = set()
    async for asked in call.in_slices(request.resources):
        resource = (asked.resource_type, asked.resource_name)
        if resource in seen:
            continue  # repeated resources would multiply the size of the response
        seen.add(resource)
        error: TidemillError | None = None
        entries: list[ConfigEntry] = []
        try:
            _check_rights(call, Operation.DESCRIBE_CONFIGS, asked)
            entries = _entries(call.broker, asked)
        except TidemillError as caught:
            error = caught
        results.append(
            call.part(
                "DescribeConfigsResult",
                error_code=error_code(error),
                error_message=error_message(error),
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
                configs=tuple([_described(call, request, entry) async for entry in call.in_slices(entries)]),
            )
        )
    return call.response(results=tuple(results))


def _check_rights(call: Call, operation: Operation, asked: Any) -> None:
    if asked.resource_type == TOPIC:
        call.check(operation, ResourceType.TOPIC, asked.resource_name)
    elif asked.resource_type == GROUP:
        call.check(operation, ResourceType.GROUP, asked.resource_name)
    else:
        call.check_cluster(operation)


def _entries(broker: BrokerNode, asked: Any) -> list[ConfigEntry]:
    if asked.resource_type == TOPIC:
        entries = topic_listing(broker, _topic(broker, asked.resource_name))
    elif asked.resource_type == BROKER:
        if not asked.resource_name:
            return []  # asks for dynamic settings of all brokers; there are none
        _check_broker(broker, asked.resource_name)
        entries = broker_listing(broker)
    elif asked.resource_type == GROUP:
        _check_group(asked.resource_name)
        entries = group_listing(broker, asked.resource_name)
    else:
        raise InvalidRequest(f"resource type {asked.resource_type} is not supported; {_SUPPORTED}")
    keys = asked.configuration_keys
    if keys is None:
        return entries
    wanted = set(keys)
    return [entry for entry in entries if entry.setting.name in wanted]


def _topic(broker: BrokerNode, name: str) -> Topic:
    check_topic_name(name)
    topic = broker.view.topic(name)
    if topic is None:
        raise UnknownTopicOrPartition(f"there is no topic {name}; create it with: tidemill topic create {name}")
    return topic


def _check_group(group_id: str) -> None:
    if not group_id or len(group_id) > GROUP_LENGTH_MAX:
        raise InvalidRequest(f"the group id has {len(group_id)} characters; 1 to {GROUP_LENGTH_MAX} are allowed")


def _check_broker(broker: BrokerNode, name: str) -> None:
    if name != str(broker.node_id):
        raise InvalidRequest(f"this is broker {broker.node_id}; send the request to broker {name[:20]!r}")


def _described(call: Call, request: Any, entry: ConfigEntry) -> Any:
    synonyms = entry.synonyms if request.include_synonyms else []
    return call.part(
        "DescribeConfigsResourceResult",
        name=entry.setting.name,
        value=None if entry.setting.sensitive else entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.setting.sensitive,
        synonyms=tuple(call.part("DescribeConfigsSynonym", **synonym._asdict()) for synonym in synonyms),
        config_type=entry.setting.kind.value,
        documentation=entry.setting.doc if getattr(request, "include_documentation", False) else None,
    )


async def alter_configs(call: Call["AlterConfigsResponse"], request: "AlterConfigsRequest") -> "AlterConfigsResponse":
    """Replace all overrides of topics or groups."""
    return await _alter(call, request.resources, _replaced, validate_only=request.validate_only)


async def incremental_alter_configs(
    call: Call["IncrementalAlterConfigsResponse"], request: "IncrementalAlterConfigsRequest"
) -> "IncrementalAlterConfigsResponse":
    """Change single overrides of topics or groups."""
    return await _alter(call, request.resources, _changed, validate_only=request.validate_only)


async def _alter(
    call: Call[Response],
    resources: Sequence[Any],
    decide: Callable[["Alterable", Sequence[Any]], dict[str, str]],
    *,
    validate_only: bool,
) -> Response:
    counted = Counter([(each.resource_type, each.resource_name) async for each in call.in_slices(resources)])
    responses = []
    async for asked in call.in_slices(resources):
        error: TidemillError | None = None
        try:
            if counted[asked.resource_type, asked.resource_name] > 1:
                raise InvalidRequest(f"the request names {asked.resource_name[:60]!r} twice; name each resource once")
            if len({config.name for config in asked.configs}) != len(asked.configs):
                raise InvalidRequest(
                    f"the request names a setting of {asked.resource_name[:60]!r} twice; name each setting once"
                )
            _check_rights(call, Operation.ALTER_CONFIGS, asked)
            if asked.resource_type == BROKER and [config.name for config in asked.configs] == [ACCEPT_CLOCK]:
                _accept_clock(call.broker, asked, validate_only=validate_only)
            elif asked.resource_type == GROUP:
                _check_group(asked.resource_name)
                group = call.broker.group_overrides
                known = Alterable(group.overrides(asked.resource_name), group.defaults, group_settings.setting)
                overrides = decide(known, asked.configs)
                await group.alter(asked.resource_name, overrides, validate_only=validate_only)
            else:
                topic = _alterable(call.broker, asked)
                defaults = call.broker.settings.topic_defaults
                overrides = decide(Alterable(topic.overrides, defaults, topic_settings.setting), asked.configs)
                await call.broker.topics.alter(topic.name, overrides, validate_only=validate_only)
            if not validate_only:
                names = sorted(config.name for config in asked.configs)
                call.changed("configs_altered", resource=asked.resource_name, settings=names)
        except TidemillError as caught:
            error = caught
        responses.append(
            call.part(
                "AlterConfigsResourceResponse",
                error_code=error_code(error),
                error_message=error_message(error),
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
        )
    return call.response(responses=tuple(responses))


def _accept_clock(broker: BrokerNode, asked: Any, *, validate_only: bool) -> None:
    _check_broker(broker, asked.resource_name)
    [config] = asked.configs
    if getattr(config, "config_operation", SET) != SET or config.value != "true":
        raise InvalidConfig(f"{ACCEPT_CLOCK} can only be set to true")
    if broker.clock is not None and not validate_only:
        broker.clock.accept()


def _alterable(broker: BrokerNode, asked: Any) -> Topic:
    if asked.resource_type == BROKER:
        raise InvalidRequest(
            "broker settings are read-only; set them at start in tidemill.toml, the environment or flags"
        )
    if asked.resource_type != TOPIC:
        raise InvalidRequest(f"resource type {asked.resource_type} is not supported; {_SUPPORTED}")
    return _topic(broker, asked.resource_name)


class Alterable(NamedTuple):
    """The overrides that a request changes, and what they override."""

    overrides: Mapping[str, str]
    defaults: Mapping[str, str]
    setting: Callable[[str], Setting]


def _replaced(_known: Alterable, configs: Sequence[Any]) -> dict[str, str]:
    return {config.name: _value(config) for config in configs}


def _changed(known: Alterable, configs: Sequence[Any]) -> dict[str, str]:
    overrides = dict(known.overrides)
    for config in configs:
        setting = known.setting(config.name)
        if config.config_operation == DELETE:
            overrides.pop(config.name, None)
        elif config.config_operation == SET:
            overrides[config.name] = _value(config)
        elif config.config_operation in {APPEND, SUBTRACT}:
            current = overrides.get(config.name, known.defaults.get(config.name, setting.default))
            overrides[config.name] = _edited(current, setting, config)
        else:
            raise InvalidRequest(f"operation {config.config_operation} on {config.name} is not supported; use 0 to 3")
    return overrides


def _edited(text: str, setting: Setting, config: Any) -> str:
    if setting.kind is not SettingKind.LIST:
        raise InvalidConfig(f"{config.name} is not a list; set its value instead")
    current = list(setting.read(text))
    given = [part.strip() for part in _value(config).split(",") if part.strip()]
    if config.config_operation == APPEND:
        return ",".join([*current, *(part for part in given if part not in current)])
    return ",".join(part for part in current if part not in given)


def _value(config: Any) -> str:
    if config.value is None:
        raise InvalidRequest(f"setting {config.name[:60]} has no value")
    text: str = config.value
    return text


async def list_config_resources(
    call: Call["ListConfigResourcesResponse"], request: "ListConfigResourcesRequest"
) -> "ListConfigResourcesResponse":
    """The names of what has settings; version 0 asks for client metrics, of which there are none."""
    call.check_cluster(Operation.DESCRIBE_CONFIGS)
    asked = set(getattr(request, "resource_types", (_CLIENT_METRICS,))) or _CONFIG_TYPES
    if not asked <= _CONFIG_TYPES:
        raise UnsupportedVersion(f"resource types {sorted(asked - _CONFIG_TYPES)} are not supported; {_SUPPORTED}")
    broker = call.broker
    nodes = [str(node.node_id) for node in broker.view.brokers(call.listener)]
    names = {
        TOPIC: sorted(topic.name for topic in broker.view.topics()) if TOPIC in asked else [],
        BROKER: nodes,
        _LOGGER: nodes,
        GROUP: broker.group_overrides.names(),
    }
    found = [
        call.part("ConfigResource", resource_name=name, resource_type=kind)
        for kind in sorted(asked)
        async for name in call.in_slices(names.get(kind, []))
    ]
    return call.response(config_resources=tuple(found))
