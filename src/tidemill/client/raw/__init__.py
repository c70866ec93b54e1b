"""A small Kafka client that moves closed record batches: `RawClient`, and what its calls take and give."""

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
