"""`build` leaves out the fields that a version does not have, so a misspelt field would never be sent."""

import ast
import pkgutil
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path

import kio.schema

import tidemill.servers.kafka
from tidemill.wire.kafka.schema import response_class

RESPONSES = ("response", "part")


def keywords(source: Path) -> Iterator[tuple[int, str]]:
    """Each keyword of a call that makes a response or a part of one, with its line."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in RESPONSES:
            yield from ((node.lineno, word.arg) for word in node.keywords if word.arg is not None)


def test_every_field_that_a_handler_sets_exists_in_a_version() -> None:
    assert response_class(18, 0)  # prepares kio for an installed hypothesis
    known: set[str] = set()
    for module in pkgutil.walk_packages(kio.schema.__path__, "kio.schema."):
        if module.name.endswith(".response"):
            kinds = filter(is_dataclass, vars(import_module(module.name)).values())
            known |= {field.name for kind in kinds for field in fields(kind)}
    found = {
        f"{source.name}:{line} {name}"
        for source in Path(tidemill.servers.kafka.__path__[0]).glob("*.py")
        for line, name in keywords(source)
        if name not in known
    }
    assert not found
