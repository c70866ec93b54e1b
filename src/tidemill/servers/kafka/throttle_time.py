"""Writes the throttle time into a response, whether it is a message or encoded already."""

from dataclasses import replace
from datetime import timedelta
from functools import cache
from math import ceil
from struct import Struct
from typing import Any

from tidemill.model.topic_settings import INT32_MAX
from tidemill.wire.kafka.requests import is_flexible
from tidemill.wire.kafka.schema import field_names, response_class

PRODUCE = 0
_FIELD = "throttle_time"
_INT32 = Struct(">i").pack
_SIZE = 4


def throttle_ms(wait_s: float) -> int:
    """A time to wait as it is sent to clients."""
    return min(ceil(wait_s * 1000), INT32_MAX)


def with_throttle_time(answer: Any, key: int, version: int, time_ms: int) -> Any:
    """The response with this throttle time; the same where the version has no such field, or there is no response."""
    if answer is None or not _has_throttle_time(key, version):
        return answer
    if not isinstance(answer, list):
        return replace(answer, **{_FIELD: timedelta(milliseconds=time_ms)})
    if key == PRODUCE:
        end = b"\0" if is_flexible(key, version) else b""
        cut = -_SIZE - len(end)
        return [*answer[:-1], b"".join((answer[-1][:cut], _INT32(time_ms), end))]
    return [b"".join((_INT32(time_ms), answer[0][_SIZE:])), *answer[1:]]


@cache
def _has_throttle_time(key: int, version: int) -> bool:
    return _FIELD in field_names(response_class(key, version))
