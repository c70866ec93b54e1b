"""Downloads of records: how many run at the same time, of one client and of all."""

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from tidemill.security.client_rights import ClientRights
from tidemill.security.core.principal import user
from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.servers.http.api.records import CLIENT_EXPORTS_MAX, EXPORTS_MAX, ExportResponse


async def nothing() -> AsyncIterator[bytes]:
    yield b"{}\n"


def download(name: str) -> ExportResponse:
    return ExportResponse(ClientRights(cast("Any", None), user(name), "10.0.0.1"), nothing(), "orders.jsonl")


async def finish(response: ExportResponse) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(_: Any) -> None:
        return None

    await response({"type": "http", "asgi": {"spec_version": "2.4"}}, receive, send)


async def test_downloads_of_one_client_leave_room_for_others() -> None:
    mine = [download("alice") for _ in range(CLIENT_EXPORTS_MAX)]
    with pytest.raises(ApiProblem, match="downloads are running") as refused:
        download("alice")
    assert refused.value.status == 429
    others = [download(f"other-{number}") for number in range(EXPORTS_MAX - CLIENT_EXPORTS_MAX)]
    with pytest.raises(ApiProblem):
        download("one-too-many")
    await finish(mine.pop())
    mine.append(download("alice"))
    for each in (*mine, *others):
        await finish(each)
    assert not ExportResponse.running
