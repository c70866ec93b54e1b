"""The consumers of timelines, visible to every broker: one key per consumer, under the session of its broker.

When a broker dies, its session deletes the keys of its consumers. An id is one consumer: the last connection with an id
replaces the earlier one.
"""

import json
from typing import NamedTuple
from urllib.parse import quote, unquote

from tidemill.model.errors import KafkaStorageError

CONSUMERS = "consumers/"
DEALS = "deals/"
"""The records of deals, by timeline. They outlive the sessions of brokers."""


class RegisteredConsumer(NamedTuple):
    """A consumer of a timeline: its rack, the broker that serves it, and since when."""

    id: str
    rack: str
    node_id: int
    since_ms: int


def consumer_key(timeline: str, consumer: str) -> str:
    """The key of a consumer."""
    return f"{CONSUMERS}{timeline}/{quote(consumer, safe='')}"


def parse_consumer_key(key: str) -> tuple[str, str]:
    """The timeline and the consumer of a key."""
    timeline, _, consumer = key.removeprefix(CONSUMERS).partition("/")
    return timeline, unquote(consumer)


def deal_key(timeline: str) -> str:
    """The key of the record of a timeline's deal."""
    return f"{DEALS}{timeline}"


def encode_consumer(registered: RegisteredConsumer) -> bytes:
    """Encode a consumer for coordination; its id is the key."""
    document = {"rack": registered.rack, "node_id": registered.node_id, "since_ms": registered.since_ms}
    return json.dumps(document, separators=(",", ":")).encode()


def decode_consumer(consumer: str, document: bytes) -> RegisteredConsumer:
    """Decode the output of `encode_consumer`; fields of newer brokers are ignored."""
    try:
        read = json.loads(document)
        return RegisteredConsumer(consumer, str(read["rack"]), int(read["node_id"]), int(read["since_ms"]))
    except (ValueError, KeyError, TypeError) as error:
        raise KafkaStorageError(f"a consumer in coordination cannot be read: {error}") from None
