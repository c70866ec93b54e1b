"""Describes and changes the settings of topics. Types and sources are Kafka's numbers."""

from collections.abc import Mapping
from typing import NamedTuple

from tidemill.client.kafka.apis import DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from tidemill.client.kafka.protocol import plain
from tidemill.client.kafka.routing import RequestRouter
from tidemill.model.errors import of_code

TOPIC = 2
SET, DELETE = 0, 1
FROM_TOPIC = 1
FROM_DEFAULT = 5


class SettingSynonym(NamedTuple):
    """One place that gives a setting a value."""

    name: str
    value: str | None
    source: int


class DescribedSetting(NamedTuple):
    """A setting with its value, type and meaning. `synonyms` begin with the place that counts."""

    name: str
    value: str | None
    source: int
    kind: int
    read_only: bool
    sensitive: bool
    documentation: str
    synonyms: tuple[SettingSynonym, ...]

    @property
    def default(self) -> str | None:
        """The value without an override of the topic."""
        return next((each.value for each in self.synonyms if each.source != FROM_TOPIC), None)


def describe(router: RequestRouter, topic: str) -> list[DescribedSetting]:
    """Every setting of a topic, by name."""
    wanted = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": None}
    fields = {"resources": [wanted], "include_synonyms": True, "include_documentation": True}

    def ask() -> list[DescribedSetting]:
        [result] = router.anyone().call(plain(DESCRIBE_CONFIGS, fields)).message().results
        if result.error_code:
            raise of_code(result.error_code, result.error_message or "")
        return sorted(
            DescribedSetting(
                each.name,
                each.value,
                int(each.config_source),
                int(getattr(each, "config_type", 0)),
                each.read_only,
                each.is_sensitive,
                getattr(each, "documentation", None) or "",
                tuple(SettingSynonym(other.name, other.value, int(other.source)) for other in each.synonyms),
            )
            for each in result.configs
        )

    return router.persist(f"describe {topic}", ask)


def alter(router: RequestRouter, name: str, changes: Mapping[str, str | None], *, resource_type: int = TOPIC) -> None:
    """Set settings of a topic, or of another resource; None removes its override."""
    configs = [
        {"name": key, "config_operation": DELETE if value is None else SET, "value": value}
        for key, value in changes.items()
    ]
    fields = {
        "resources": [{"resource_type": resource_type, "resource_name": name, "configs": configs}],
        "validate_only": False,
    }

    def send() -> None:
        [result] = router.anyone().call(plain(INCREMENTAL_ALTER_CONFIGS, fields)).message().responses
        if result.error_code:
            raise of_code(result.error_code, result.error_message or "")

    router.persist(f"alter {name}", send)
