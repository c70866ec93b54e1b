"""The settings of groups: kept in coordination, one entry for each group, and followed by every broker."""

import asyncio
import json
from collections.abc import Callable, Mapping

import structlog

from tidemill.model import group_settings
from tidemill.model.broker_settings import BrokerSettings
from tidemill.model.errors import InvalidConfig, PolicyViolation
from tidemill.model.group_settings import BROKER_SETTING_OF, GroupSettings
from tidemill.security.directory import Directory, DirectoryChanges
from tidemill.security.interface import SecurityStore
from tidemill.supervision.supervisor import Supervisor

PREFIX = "groups/settings/"
GROUPS_MAX = 10_000
"""The most groups of a cluster that have settings of their own."""

log = structlog.get_logger("tidemill.groups")


class GroupOverrides:
    """The settings of groups as this broker knows them. `changed` gets the name of each group whose settings change."""

    def __init__(self, store: SecurityStore, settings: BrokerSettings, changed: Callable[[str], None]) -> None:
        self._directory = Directory(store, PREFIX, self._on_change)
        self._changed = changed
        self._room = asyncio.Lock()
        self.defaults = {
            name: settings.overrides[broker_name]
            for name, broker_name in BROKER_SETTING_OF.items()
            if broker_name in settings.overrides
        }
        """The values that the settings of the broker give."""
        self._standard = group_settings.parse({}, self.defaults)
        self._parsed: dict[str, GroupSettings] = {}

    async def start(self, supervisor: Supervisor) -> None:
        """Read the settings, then follow their changes until `stop`."""
        await self._directory.start(supervisor)

    async def stop(self) -> None:
        """Stop following changes."""
        await self._directory.stop()

    def names(self) -> list[str]:
        """The groups that have settings of their own."""
        return sorted(self._directory.values)

    def of(self, group_id: str) -> GroupSettings:
        """The settings of a group."""
        return self._parsed.get(group_id, self._standard)

    def overrides(self, group_id: str) -> Mapping[str, str]:
        """The settings that a group has of its own."""
        value = self._directory.get(group_id)
        return {} if value is None else _decoded(value)

    async def alter(self, group_id: str, overrides: Mapping[str, str], *, validate_only: bool) -> None:
        """Replace the settings of a group. InvalidConfig names the first invalid one."""
        group_settings.parse(overrides, self.defaults)
        async with self._room:
            known = self._directory.values
            if overrides and group_id not in known and len(known) >= GROUPS_MAX:
                raise PolicyViolation(f"{GROUPS_MAX} groups have settings, which is the limit; remove some")
            if not validate_only:
                text = json.dumps(dict(sorted(overrides.items())), separators=(",", ":"))
                await self._directory.update(group_id, lambda _: text.encode() if overrides else None)

    def _on_change(self, changes: DirectoryChanges) -> None:
        for group_id, value in changes.items():
            self._parsed.pop(group_id, None)
            try:
                if value is not None:
                    self._parsed[group_id] = group_settings.parse(_decoded(value), self.defaults)
            except InvalidConfig as error:
                log.error("group_settings_unreadable", group=group_id, error=str(error), next_step="set them again")
            self._changed(group_id)


def _decoded(value: bytes) -> dict[str, str]:
    try:
        found = json.loads(value)
    except ValueError as error:
        raise InvalidConfig(f"the stored settings of a group are not JSON: {error}") from None
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise InvalidConfig("the stored settings of a group are not a JSON object of texts")
    return found
