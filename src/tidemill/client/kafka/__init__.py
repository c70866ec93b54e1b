"""A small Kafka client that moves sealed record batches: `KafkaClient` and the types of its calls.

Each name is imported at its first use, because a broker needs a few modules of this package, but not the client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.client.kafka.client import EARLIEST, LATEST, KafkaClient, ListedOffset
    from tidemill.client.kafka.coordinators import GroupOffset, ProducerIdentity
    from tidemill.client.kafka.errors import AuthenticationFailed, BrokerUnreachable, ClientError, InvalidClientOption
    from tidemill.client.kafka.fetch import FetchedBatches
    from tidemill.client.kafka.produce import Produced
    from tidemill.client.kafka.topology import TopicInfo

__all__ = [
    "EARLIEST",
    "LATEST",
    "AuthenticationFailed",
    "BrokerUnreachable",
    "ClientError",
    "FetchedBatches",
    "GroupOffset",
    "InvalidClientOption",
    "KafkaClient",
    "ListedOffset",
    "Produced",
    "ProducerIdentity",
    "TopicInfo",
]

_MODULES = {
    "EARLIEST": "client",
    "LATEST": "client",
    "AuthenticationFailed": "errors",
    "ClientError": "errors",
    "FetchedBatches": "fetch",
    "ListedOffset": "client",
    "GroupOffset": "coordinators",
    "InvalidClientOption": "errors",
    "Produced": "produce",
    "ProducerIdentity": "coordinators",
    "KafkaClient": "client",
    "TopicInfo": "topology",
    "BrokerUnreachable": "errors",
}
"""Public name -> the module of this package that defines it."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
