"""Finds kio's message classes, and builds the response of one version.

kio has one module per API, version and direction (372 for what a broker serves: 1.3 s to import). So a module is loaded
with its first message. Versions differ in their fields. Handlers set every field that they know and `build` keeps the
fields of the version, so that one handler serves all versions of its API.
"""

import sys
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, get_origin

from kio.schema.index import api_key_map

NO_TIME = timedelta(0)
ZEROS: dict[str, Any] = {"string": "", "bytes": b"", "records": b"", "bool": False, "uuid": None, "float64": 0.0}


@cache
def api_name(key: int) -> str:
    """Return the API's name as Kafka writes it: `ApiVersions`."""
    return "".join(word.capitalize() for word in api_key_map[key].split("_"))


@cache
def request_class(key: int, version: int) -> Any:
    """Return the class of the API's request in this version."""
    return getattr(_module(f"{api_key_map[key]}.v{version}.request"), f"{api_name(key)}Request")


@cache
def response_module(key: int, version: int) -> ModuleType:
    """Return the module with the classes of the API's response in this version."""
    return _module(f"{api_key_map[key]}.v{version}.response")


def _module(name: str) -> ModuleType:
    _spare_hypothesis()
    return import_module(f"kio.schema.{name}")


@cache
def _spare_hypothesis() -> None:
    """Load kio's types as if hypothesis were not installed.

    With hypothesis installed, kio registers each of its types with it. That costs 1.6 s and 230 MB at the first request
    and blocks all clients. It also creates a folder `.hypothesis` in the working directory. A process that has already
    imported hypothesis may want that.
    """
    if "hypothesis" not in sys.modules:
        sys.modules["hypothesis"] = None  # type: ignore[assignment] # which is how Python knows that there is none
        try:
            import_module("kio.static._phantom")
        finally:
            del sys.modules["hypothesis"]


@cache
def response_class(key: int, version: int) -> Any:
    """Return the class of the API's response in this version."""
    return getattr(response_module(key, version), f"{api_name(key)}Response")


@cache
def field_names(message: Any) -> frozenset[str]:
    """Return the names of the fields of a message class."""
    return frozenset(field.name for field in fields(message))


@cache
def _zeros(message: Any) -> Mapping[str, Any]:
    return {field.name: zero_of(field) for field in fields(message) if field.default is MISSING}


def zero_of(field: Any) -> Any:
    """Return the value of a field that has no default and is not set."""
    if get_origin(field.type) is tuple:
        return ()
    kind: Any = field.type
    if is_dataclass(kind):
        return build(kind, {})
    name: str | None = field.metadata.get("kafka_type")
    if name is None:
        return None
    return NO_TIME if name.startswith("timedelta") else ZEROS.get(name, 0)


def build(message: Any, given: Mapping[str, Any]) -> Any:
    """Return the message with the given fields that its version has. Other fields get their default or zero."""
    known = field_names(message)
    return message(**{**_zeros(message), **{name: value for name, value in given.items() if name in known}})
