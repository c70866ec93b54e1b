"""Where kio's message classes are found, and how an answer of one version is put together.

kio has one module per API, version and direction (372 for what a broker serves: 1.3 s to import), so a module is
loaded when its first message comes. Versions differ in their fields; handlers name every field they know and
`build` keeps those that this version has, so that one handler serves all versions of its API.
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
    """The API's name as Kafka writes it: `ApiVersions`."""
    return "".join(word.capitalize() for word in api_key_map[key].split("_"))


@cache
def request_class(key: int, version: int) -> Any:
    """The class of the API's request in this version."""
    return getattr(_module(f"{api_key_map[key]}.v{version}.request"), f"{api_name(key)}Request")


@cache
def response_module(key: int, version: int) -> ModuleType:
    """The module that holds the classes of the API's answer in this version."""
    return _module(f"{api_key_map[key]}.v{version}.response")


def _module(name: str) -> ModuleType:
    _spare_hypothesis()
    return import_module(f"kio.schema.{name}")


@cache
def _spare_hypothesis() -> None:
    """Load what kio's types are made of as if hypothesis were not installed.

    Where it is, kio tells it about each of its types: 1.6 s and 230 MB at the first request, while nobody is
    answered, and a folder `.hypothesis` wherever the broker was started. A process that has loaded it may want that.
    """
    if "hypothesis" not in sys.modules:
        sys.modules["hypothesis"] = None  # type: ignore[assignment] # which is how Python knows that there is none
        try:
            import_module("kio.static._phantom")
        finally:
            del sys.modules["hypothesis"]


@cache
def response_class(key: int, version: int) -> Any:
    """The class of the API's answer in this version."""
    return getattr(response_module(key, version), f"{api_name(key)}Response")


@cache
def field_names(message: Any) -> frozenset[str]:
    """The names of the fields of a message class."""
    return frozenset(field.name for field in fields(message))


@cache
def _zeros(message: Any) -> Mapping[str, Any]:
    return {field.name: zero_of(field) for field in fields(message) if field.default is MISSING}


def zero_of(field: Any) -> Any:
    """What a field holds that has no default and is not given."""
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
    """The message with the given fields as far as its version has them; fields not given hold their default or zero."""
    known = field_names(message)
    return message(**{**_zeros(message), **{name: value for name, value in given.items() if name in known}})
