"""ACLs in coordination: brokers agree on them, and a request has limits."""

from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.support.waiting import eventually_async

from tidemill.cluster.local import LocalCoordination
from tidemill.model.errors import InvalidRequest, KafkaStorageError, PolicyViolation
from tidemill.security import acls as module
from tidemill.security.acls import ACLS, Acls
from tidemill.security.core.acl_table import AclTable
from tidemill.security.core.acls import AclBinding, AclFilter, binding_id, encode_binding
from tidemill.security.core.resources import Operation, PatternType, Permission, ResourceType
from tidemill.supervision.supervisor import Supervisor

READ = AclBinding(
    ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW
)
WRITE = READ._replace(operation=Operation.WRITE)
OTHER = READ._replace(name="pay", pattern=PatternType.PREFIXED)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LocalCoordination]:
    opened = await LocalCoordination.open(tmp_path)
    yield opened
    await opened.close()


async def started(store: LocalCoordination, tables: list[AclTable] | None = None) -> Acls:
    made = Acls(store, (tables if tables is not None else []).append)
    await made.start(Supervisor())
    return made


async def test_created_acls_are_there_at_once_and_on_other_brokers_soon(store: LocalCoordination) -> None:
    tables: list[AclTable] = []
    mine, other = await started(store, tables), await started(store)
    assert await mine.create([READ, WRITE, READ]) == [None, None, None]
    assert mine.find(AclFilter()) == [READ, WRITE]
    assert tables[-1] is mine.table
    await eventually_async(lambda: len(other.table) == 2)
    assert await other.create([READ]) == [None]
    deleted = await other.delete([AclFilter(operation=Operation.READ), AclFilter(name="orders"), AclFilter(name="no")])
    assert deleted == [{READ: None}, {READ: None, WRITE: None}, {}]
    assert len(other.table) == 0
    await eventually_async(lambda: len(mine.table) == 0)
    for each in (mine, other):
        await each.stop()


async def test_an_acl_that_cannot_be_read_may_be_a_deny_so_nothing_is_allowed(store: LocalCoordination) -> None:
    await store.compare_and_put(ACLS + binding_id(READ), encode_binding(READ), 0)
    await store.compare_and_put(ACLS + "later", b'{"resource_type":"MOON"}', 0)
    acls = await started(store)
    assert list(acls.table) == [READ]
    await acls.create([OTHER])
    assert set(acls.table) == {READ, OTHER}
    assert allowed(acls.table) == (False, False)
    found = await store.get(ACLS + "later")
    assert found is not None
    await store.compare_and_put(ACLS + "later", None, found.revision)
    await eventually_async(lambda: allowed(acls.table) == (True, True))
    await acls.stop()


def allowed(table: AclTable) -> tuple[bool, bool]:
    """Whether alice may read orders, and anything at all."""
    found = table.decide("User:alice", "h", ResourceType.TOPIC, "orders")
    anywhere = table.allows_anywhere("User:alice", "h", Operation.READ, ResourceType.TOPIC)
    return bool(found.operations >> Operation.READ & 1), anywhere


async def test_number_of_acls_is_limited(store: LocalCoordination) -> None:
    acls = await started(store)
    with patch.object(module, "ACLS_MAX", 2):
        await acls.create([READ])
        first, second, third = await acls.create([READ, WRITE, OTHER])
        assert (first, second) == (None, None)
        assert isinstance(third, PolicyViolation)
        assert "2 is the limit" in str(third)
    assert set(acls.table) == {READ, WRITE}
    await acls.stop()


async def test_size_of_a_request_is_limited(store: LocalCoordination) -> None:
    acls = await started(store)
    with patch.object(module, "ACLS_PER_REQUEST_MAX", 1):
        with pytest.raises(InvalidRequest, match="at most 1 in one request"):
            await acls.create([READ, WRITE])
        with pytest.raises(InvalidRequest, match="at most 1 in one request"):
            await acls.delete([AclFilter(), AclFilter()])
    assert len(acls.table) == 0
    await acls.stop()


async def test_each_binding_has_its_own_error(store: LocalCoordination) -> None:
    acls = await started(store)
    put = acls._directory.put

    async def failing(name: str, value: bytes) -> None:
        if name == binding_id(WRITE):
            raise KafkaStorageError
        await put(name, value)

    with patch.object(acls._directory, "put", failing):
        first, second = await acls.create([READ, WRITE])
    assert first is None
    assert isinstance(second, KafkaStorageError)
    assert list(acls.table) == [READ]
    await acls.stop()
