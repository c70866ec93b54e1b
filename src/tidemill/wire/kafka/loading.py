"""Loads the message classes of an API version ahead of its first request.

Importing kio's module of one version and building its reader and writer takes 5 to 30 ms of processor time. A server on
an event loop must call `load` on a thread first. `is_loaded` returns whether that is needed.
"""

from tidemill.wire.kafka.reader import message_reader
from tidemill.wire.kafka.requests import is_flexible
from tidemill.wire.kafka.schema import request_class, response_class
from tidemill.wire.kafka.writer import message_writer

_LOADED: set[tuple[int, int]] = set()


def is_loaded(key: int, version: int) -> bool:
    """Whether requests of this version can be read and answered without an import."""
    return (key, version) in _LOADED


def load(key: int, version: int) -> None:
    """Import the classes of this version and build their reader and writer."""
    message_reader(request_class(key, version))
    message_writer(response_class(key, version))
    is_flexible(key, version)
    _LOADED.add((key, version))
