"""Documents, empty answers and errors of handlers, and the read-only console."""

from typing import Any, cast

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from tidemill.model.errors import (
    GroupIdNotFound,
    InvalidConfig,
    LeaderNotAvailable,
    NonEmptyGroup,
    ThrottlingQuotaExceeded,
    TidemillError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    UnknownServerError,
)
from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.servers.http.api.dispatch import api_endpoint
from tidemill.servers.http.core.route_access import LoginNeed, RouteAccess
from tidemill.wire.http.document import Problem


class CountingParts:
    """Counts how often the answers of other brokers are forgotten."""

    forgotten = 0

    def forget(self) -> None:
        self.forgotten += 1


class CalledContext:
    """What an endpoint uses of its context."""

    def __init__(self, *, is_readonly: bool) -> None:
        self.is_readonly = is_readonly
        self.parts = CountingParts()


async def answered(
    found: Any, *, changes: bool = False, is_readonly: bool = False, context: CalledContext | None = None
) -> Response:
    async def handler(*_: Any) -> Any:
        if isinstance(found, Exception):
            raise found
        return found

    made = context or CalledContext(is_readonly=is_readonly)
    access = RouteAccess("POST", "/api/v1/x", LoginNeed.LOGIN, changes=changes)
    request = Request({"type": "http", "method": "POST", "path": "/api/v1/x", "query_string": b"", "headers": []})
    return await api_endpoint(access, handler, cast("Any", made))(request, cast("Any", None))


async def test_a_document_becomes_json() -> None:
    answer = await answered(Problem(error="é"))
    assert (answer.status_code, answer.body, answer.media_type) == (200, '{"error":"é"}'.encode(), "application/json")


async def test_an_empty_answer_becomes_204() -> None:
    assert (await answered(None)).status_code == 204


async def test_a_response_is_passed_on() -> None:
    made = PlainTextResponse("x")
    assert await answered(made) is made


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ApiProblem(418, "no"), 418),
        (TransactionalIdAuthorizationFailed("no"), 403),
        (GroupIdNotFound("no"), 404),
        (NonEmptyGroup("no"), 409),
        (InvalidConfig("no"), 400),
        (ThrottlingQuotaExceeded("no"), 429),
        (LeaderNotAvailable("no"), 503),
        (UnknownServerError("no"), 500),
        (TidemillError("no"), 400),
    ],
)
async def test_an_error_has_its_status(error: Exception, status: int) -> None:
    answer = await answered(error)
    assert (answer.status_code, answer.body) == (status, b'{"error":"no"}')


async def test_a_denial_is_left_to_the_route_which_adds_the_next_step() -> None:
    with pytest.raises(TopicAuthorizationFailed):
        await answered(TopicAuthorizationFailed("no"))


async def test_a_read_only_console_refuses_changes_only() -> None:
    assert (await answered(None, is_readonly=True)).status_code == 204
    refused = await answered(None, changes=True, is_readonly=True)
    assert refused.status_code == 403
    assert b"--console-readonly" in refused.body
    assert (await answered(None, changes=True)).status_code == 204


@pytest.mark.parametrize("found", [None, ApiProblem(503, "unknown outcome")])
async def test_answers_of_other_brokers_are_not_used_again_after_a_change(found: Any) -> None:
    context = CalledContext(is_readonly=False)
    await answered(Problem(error="read"), context=context)
    assert context.parts.forgotten == 0
    await answered(found, changes=True, context=context)
    assert context.parts.forgotten == 1
