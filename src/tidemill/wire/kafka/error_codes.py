"""Finds the error codes in a response. Kafka puts most of them next to their topic, partition or group."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, get_args, get_origin

ERROR_CODE = "error_code"


def refusals(answer: Any) -> Iterator[int]:
    """Yield every non-zero error code of the response. Parts without an error field are skipped."""
    message: Any = type(answer)
    own, parts = _places(message)
    if own and (code := getattr(answer, ERROR_CODE)):
        yield int(code)
    for name in parts:
        for part in getattr(answer, name) or ():
            yield from refusals(part)


@cache
def _places(message: Any) -> tuple[bool, tuple[str, ...]]:
    """Return whether the class has an error code, and which of its fields are lists that contain some."""
    own = any(field.name == ERROR_CODE for field in fields(message))
    return own, tuple(field.name for field in fields(message) if _holds_codes(field.type))


def _holds_codes(kind: Any) -> bool:
    options = [option for option in (kind, *get_args(kind)) if get_origin(option) is tuple]
    members: list[Any] = [member for option in options for member in get_args(option) if is_dataclass(member)]
    return any(any(_places(member)) for member in members)
