"""Every route has a row in the table of rights, and every row has a handler."""

from typing import Any, cast

import pytest

from tidemill.security.core.resources import ResourceType
from tidemill.servers.http import routes
from tidemill.servers.http.core.authorization_table import ROUTES
from tidemill.servers.http.core.route_access import LoginNeed

OPEN = {"GET /login", "POST /login", "GET /static/{name}", "GET /health/live"}
"""What a client without a login may use, whatever it is. A new path here needs a reason."""


@pytest.fixture
def handlers() -> set[str]:
    broker = type("Nothing", (), {"metrics": None, "partitions": None})
    nothing = cast("Any", type("Nothing", (), {"broker": broker, "facts": None, "sql": None}))
    return set(routes.handlers_of(nothing, nothing))


def test_handlers_and_rows_are_the_same(handlers: set[str]) -> None:
    rows = [f"{each.method} {each.path}" for each in ROUTES]
    assert len(rows) == len(set(rows))
    assert handlers == set(rows)


def test_few_routes_are_open() -> None:
    assert {f"{each.method} {each.path}" for each in ROUTES if each.login is LoginNeed.NONE} == OPEN


def test_routes_for_users_check_a_right() -> None:
    for each in ROUTES:
        assert each.rights or each.login in {LoginNeed.NONE, LoginNeed.BROKER} or each.path == "/logout", each.path
        for right in each.rights:
            # The server checks required rights on the cluster; all others are for the handler.
            assert right.resource_type is ResourceType.CLUSTER or not right.is_required
