"""The quotas of the cluster: kept in coordination, one entry for each entity, and followed by every broker."""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from tidemill.model.errors import InvalidRequest, KafkaStorageError, PolicyViolation
from tidemill.security.core.quotas import (
    QuotaEntity,
    QuotaFilter,
    QuotaKind,
    QuotaTable,
    QuotaValues,
    decode_entity,
    decode_values,
    edited_values,
    entity_id,
    parse_kind,
    parse_value,
)
from tidemill.security.directory import Directory, DirectoryChanges
from tidemill.security.interface import SecurityStore
from tidemill.supervision.supervisor import Supervisor

QUOTAS = "security/quotas/"
QUOTA_ENTITIES_MAX = 10_000
"""The most entities of a cluster that have quotas."""
QUOTA_ENTITIES_PER_REQUEST_MAX = 1000
"""The most entities of one request."""

log = structlog.get_logger("tidemill.security")


class Quotas:
    """The quotas as this broker knows them. `on_change` gets the new table, also at the start."""

    def __init__(self, store: SecurityStore, on_change: Callable[[QuotaTable], None]) -> None:
        self._directory = Directory(store, QUOTAS, self._changed)
        self._on_change = on_change
        self._known: dict[QuotaEntity, QuotaValues] = {}
        self._room = asyncio.Lock()
        self.version = 0
        """Grows with every change, so that clients that wait for an old quota can be let go."""

    async def start(self, supervisor: Supervisor) -> None:
        """Read the quotas, then follow their changes until `stop`."""
        await self._directory.start(supervisor)

    async def stop(self) -> None:
        """Stop following changes."""
        await self._directory.stop()

    def find(self, wanted: QuotaFilter) -> list[tuple[QuotaEntity, QuotaValues]]:
        """The entities that a filter selects, with their quotas."""
        return [(entity, values) for entity, values in self._known.items() if wanted.selects(entity)]

    async def alter(
        self, entity: QuotaEntity, changes: Sequence[tuple[str, float | None]], *, validate_only: bool
    ) -> None:
        """Set quotas of an entity, or remove those whose value is None; all of them or none."""
        wanted = _parsed(entity, changes)
        async with self._room:
            if entity not in self._known and len(self._known) >= QUOTA_ENTITIES_MAX:
                raise PolicyViolation(
                    f"{QUOTA_ENTITIES_MAX} entities have quotas, which is the limit; use defaults, or remove some"
                )
            if not validate_only:
                await self._directory.update(entity_id(entity), lambda old: edited_values(old, wanted))

    def _changed(self, changes: DirectoryChanges) -> None:
        for name, value in changes.items():
            try:
                entity = decode_entity(name)
                self._known.pop(entity, None)
                values = {} if value is None else decode_values(value)
            except KafkaStorageError as error:
                log.error("quota_unreadable", quota=name, error=str(error), next_step="set the quota again")
                continue
            if values:
                self._known[entity] = values
        self.version += 1
        self._on_change(QuotaTable(self._known))


def check_entity_count(count: int) -> None:
    """Reject a request that alters too many entities."""
    if count > QUOTA_ENTITIES_PER_REQUEST_MAX:
        raise InvalidRequest(
            f"the request has {count} entities; send at most {QUOTA_ENTITIES_PER_REQUEST_MAX} in one request"
        )


def _parsed(entity: QuotaEntity, changes: Sequence[tuple[str, float | None]]) -> dict[QuotaKind, float | None]:
    wanted: dict[QuotaKind, float | None] = {}
    for key, value in changes:
        kind, parsed = (parse_kind(entity, key), None) if value is None else parse_value(entity, key, value)
        if kind in wanted:
            raise InvalidRequest(f"the request names {key} twice; name each quota once")
        wanted[kind] = parsed
    return wanted
