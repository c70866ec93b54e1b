"""Every API and version of the table answers."""

from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.kafka_server import RawClient
from tests.unit.servers.kafka.admin_client import VERSIONS, connected

from tidemill.wire.kafka.schema import request_class

pytestmark = pytest.mark.event_loop("uvloop")


@pytest.mark.parametrize("key", sorted(VERSIONS))
async def test_an_empty_request_of_every_api_and_version_is_answered_or_refused(tmp_path: Path, key: int) -> None:
    """Zero in every field, no item in any array: the broker lives on (CVE-2026-83525 was such a request)."""
    async with connected(tmp_path, {"group.min.session.timeout.ms": "1"}) as (client, server):
        for version in VERSIONS[key]:
            if key == 0 and version < 3:
                continue
            assert request_class(key, version)
            probe = await RawClient.connect(server)
            probe.send(key, version)
            probe.send(18, 0)
            with suppress(EOFError, ConnectionError):
                await probe.frame()
            await probe.close()
        await client.ask(18, 0)
