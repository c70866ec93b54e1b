"""A small Kafka client that moves closed record batches: `KafkaClient`, and what its calls take and give.

The names below are loaded when they are first used: a broker needs a few modules of this package, not the client.
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
    "ClientError",
    "FetchedBatches",
    "ListedOffset",
    "GroupOffset",
    "InvalidClientOption",
    "Produced",
    "ProducerIdentity",
    "KafkaClient",
    "TopicInfo",
    "BrokerUnreachable",
]

_HOMES = {
    "EARLIEST": "client",
    "LATEST": "client",
    "AuthenticationFailed": "errors",
    "ClientError": "errors",
    "FetchedBatches": "fetching",
    "ListedOffset": "client",
    "GroupOffset": "coordination",
    "InvalidClientOption": "errors",
    "Produced": "producing",
    "ProducerIdentity": "coordination",
    "KafkaClient": "client",
    "TopicInfo": "topology",
    "BrokerUnreachable": "errors",
}
"""Public name -> module of this package that has it."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
