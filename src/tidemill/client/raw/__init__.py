"""A small Kafka client that moves closed record batches: `RawClient`, and what its calls take and give.

The names below are loaded when they are first used: a broker needs a few modules of this package, not the client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.client.raw.client import EARLIEST, LATEST, FoundOffset, RawClient
    from tidemill.client.raw.coordination import GroupOffset, ProducerIdentity
    from tidemill.client.raw.errors import AuthenticationFailed, ClientError, InvalidOption, Unreachable
    from tidemill.client.raw.fetching import Fetched
    from tidemill.client.raw.producing import Produced
    from tidemill.client.raw.topology import TopicInfo

__all__ = [
    "EARLIEST",
    "LATEST",
    "AuthenticationFailed",
    "ClientError",
    "Fetched",
    "FoundOffset",
    "GroupOffset",
    "InvalidOption",
    "Produced",
    "ProducerIdentity",
    "RawClient",
    "TopicInfo",
    "Unreachable",
]

_HOMES = {
    "EARLIEST": "client",
    "LATEST": "client",
    "AuthenticationFailed": "errors",
    "ClientError": "errors",
    "Fetched": "fetching",
    "FoundOffset": "client",
    "GroupOffset": "coordination",
    "InvalidOption": "errors",
    "Produced": "producing",
    "ProducerIdentity": "coordination",
    "RawClient": "client",
    "TopicInfo": "topology",
    "Unreachable": "errors",
}
"""Public name -> module of this package that has it."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
