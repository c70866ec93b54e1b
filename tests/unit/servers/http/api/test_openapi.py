"""The OpenAPI document: every route of the API is in it, and every reference leads somewhere."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidemill.servers.http.api.openapi import API, openapi_document
from tidemill.servers.http.core.authorization_table import ROUTES
from tidemill.servers.http.core.route_access import LoginNeed

ROOT = Path(__file__).parents[5]


def references(found: Any) -> Iterator[str]:
    if isinstance(found, dict):
        for key, value in found.items():
            if key == "$ref":
                yield value
            yield from references(value)
    elif isinstance(found, list):
        for each in found:
            yield from references(each)


def test_every_route_for_clients_is_described() -> None:
    wanted = {
        (each.path, each.method.lower())
        for each in ROUTES
        if each.path.startswith(API) and each.login is not LoginNeed.BROKER
    }
    paths = openapi_document()["paths"]
    assert wanted == {(path, method) for path, methods in paths.items() for method in methods}


def test_operations_have_different_ids_and_a_summary() -> None:
    operations = [each for methods in openapi_document()["paths"].values() for each in methods.values()]
    ids = [each["operationId"] for each in operations]
    assert len(ids) == len(set(ids))
    assert all(each["summary"].endswith(".") for each in operations)


def test_references_are_defined_and_the_document_is_json() -> None:
    document = json.loads(json.dumps(openapi_document()))
    for each in references(document):
        place = document
        for key in each.removeprefix("#/").split("/"):
            place = place[key]


def test_routes_that_change_something_use_methods_for_it() -> None:
    for each in ROUTES:
        if each.path.startswith(API) and each.login is not LoginNeed.BROKER and each.method == "GET":
            assert not each.changes, each.name
        if each.method in {"PUT", "DELETE", "PATCH"}:
            assert each.changes, each.name


def test_the_published_document_is_the_one_that_a_broker_sends() -> None:
    """Clients are made from it. So a change of a name, a type, a limit or a default has to be seen in a diff."""
    published = json.loads((ROOT / "docs" / "reference" / "openapi.json").read_text(encoding="utf-8"))
    assert published == json.loads(json.dumps(openapi_document())), "run: python docs/reference/generate.py"


def test_a_post_changes_something_unless_it_is_a_query_or_a_login() -> None:
    """A read-only console refuses the routes that change something."""
    reading = {each.path for each in ROUTES if each.method == "POST" and not each.changes}
    assert reading == {"/sql/chart", "/api/v1/sql", "/api/v1/parts/{name}", "/login", "/logout"}


def test_a_right_is_required_unless_a_note_says_what_it_is_for() -> None:
    rights = [right for each in ROUTES for right in each.rights]
    assert any(right.is_required for right in rights)
    assert all(right.is_required for right in rights if not right.note)
