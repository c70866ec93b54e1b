"""The ACLs of the cluster: kept in coordination, one entry for each binding, and followed by every broker.

The name of an entry is made from the binding, so that two brokers that create the same binding write the same entry.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

import structlog

from tidemill.model.errors import InvalidRequest, PolicyViolation, TidemillError
from tidemill.security.core.acl_table import AclTable
from tidemill.security.core.acls import AclBinding, AclFilter, binding_id, decode_binding, encode_binding
from tidemill.security.directory import Directory, DirectoryChanges
from tidemill.security.interface import SecurityStore
from tidemill.supervision.supervisor import Supervisor

ACLS = "security/acls/"
ACLS_MAX = 20_000
"""The most ACLs of a cluster."""
ACLS_PER_REQUEST_MAX = 1000
"""The most bindings or filters of one request."""
WRITES_AT_ONCE = 16

log = structlog.get_logger("tidemill.security")


class Acls:
    """The ACLs as this broker knows them. `on_change` gets the new table, also at the start."""

    def __init__(self, store: SecurityStore, on_change: Callable[[AclTable], None]) -> None:
        self._directory = Directory(store, ACLS, self._changed)
        self._on_change = on_change
        self._known: dict[str, AclBinding] = {}
        self._unreadable: set[str] = set()
        self.table = AclTable()

    async def start(self, supervisor: Supervisor) -> None:
        """Read the ACLs, then follow their changes until `stop`."""
        await self._directory.start(supervisor)

    async def stop(self) -> None:
        """Stop following changes."""
        await self._directory.stop()

    def find(self, wanted: AclFilter) -> list[AclBinding]:
        """The bindings that a filter selects."""
        return list(self.table.find(wanted))

    async def create(self, bindings: Sequence[AclBinding]) -> list[TidemillError | None]:
        """Store bindings; the error of each, in their order. A binding that exists is no error."""
        _check_count(len(bindings), "ACLs")
        room = ACLS_MAX - len(self.table)
        errors: dict[AclBinding, TidemillError | None] = {}
        wanted: list[AclBinding] = []
        for binding in dict.fromkeys(bindings):
            errors[binding] = None
            if binding not in self.table:
                if len(wanted) < room:
                    wanted.append(binding)
                else:
                    errors[binding] = PolicyViolation(
                        f"the cluster has {len(self.table)} ACLs, and {ACLS_MAX} is the limit; use PREFIXED patterns"
                    )
        errors |= await _each(wanted, lambda binding: self._directory.put(binding_id(binding), encode_binding(binding)))
        return [errors[binding] for binding in bindings]

    async def delete(self, filters: Sequence[AclFilter]) -> list[dict[AclBinding, TidemillError | None]]:
        """Delete what each filter selects; the bindings of each filter with the error of the deletion."""
        _check_count(len(filters), "filters")
        selected = [self.find(wanted) for wanted in filters]
        every = dict.fromkeys(binding for found in selected for binding in found)
        errors = await _each(every, lambda binding: self._directory.delete(binding_id(binding)))
        return [{binding: errors[binding] for binding in found} for found in selected]

    def _changed(self, changes: DirectoryChanges) -> None:
        added: list[AclBinding] = []
        removed: list[AclBinding] = []
        for name, value in changes.items():
            old = self._known.pop(name, None)
            self._unreadable.discard(name)
            if old is not None:
                removed.append(old)
            if value is None:
                continue
            new = _decoded(name, value)
            if new is None:
                self._unreadable.add(name)
            else:
                self._known[name] = new
                added.append(new)
        self.table = self.table.with_changes(added, removed, is_complete=not self._unreadable)
        self._on_change(self.table)


def _decoded(name: str, value: bytes) -> AclBinding | None:
    try:
        return decode_binding(value)
    except InvalidRequest as error:
        log.error(
            "acl_unreadable",
            acl=name,
            error=str(error),
            effect="only super users are served, because the ACL may be a DENY",
            next_step="upgrade this broker, or delete the entry",
        )
        return None


def _check_count(count: int, what: str) -> None:
    if count > ACLS_PER_REQUEST_MAX:
        raise InvalidRequest(f"the request has {count} {what}; send at most {ACLS_PER_REQUEST_MAX} in one request")


async def _each(
    bindings: Iterable[AclBinding], write: Callable[[AclBinding], Awaitable[object]]
) -> dict[AclBinding, TidemillError | None]:
    """Write each binding, a few at the same time; the error of each."""
    permits = asyncio.Semaphore(WRITES_AT_ONCE)

    async def one(binding: AclBinding) -> tuple[AclBinding, TidemillError | None]:
        async with permits:
            try:
                await write(binding)
            except TidemillError as error:
                return binding, error
        return binding, None

    return dict(await asyncio.gather(*(one(binding) for binding in bindings)))
