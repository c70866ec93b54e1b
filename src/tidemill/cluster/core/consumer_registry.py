"""The consumers of timelines, as every broker knows them: one key for each, under the session of its broker.

A broker that dies takes its consumers' keys with it. An id is one consumer: whoever connects last has it.
"""

import json
from typing import NamedTuple
from urllib.parse import quote, unquote

from tidemill.model.errors import KafkaStorageError

CONSUMERS = "consumers/"


class RegisteredConsumer(NamedTuple):
    """A consumer of a timeline: where it stands, which broker serves it, and since when."""

    id: str
    rack: str
    node_id: int
    since_ms: int


def consumer_key(timeline: str, consumer: str) -> str:
    """Where a consumer is kept."""
    return f"{CONSUMERS}{timeline}/{quote(consumer, safe='')}"


def parse_consumer_key(key: str) -> tuple[str, str]:
    """The timeline and the consumer of a key."""
    timeline, _, consumer = key.removeprefix(CONSUMERS).partition("/")
    return timeline, unquote(consumer)


def encode_consumer(attendee: RegisteredConsumer) -> bytes:
    """A consumer as it is kept in coordination; its id is the key."""
    document = {"rack": attendee.rack, "node_id": attendee.node_id, "since_ms": attendee.since_ms}
    return json.dumps(document, separators=(",", ":")).encode()


def decode_attendee(consumer: str, document: bytes) -> RegisteredConsumer:
    """What `encode_consumer` wrote; what a newer broker adds is passed over."""
    try:
        read = json.loads(document)
        return RegisteredConsumer(consumer, str(read["rack"]), int(read["node_id"]), int(read["since_ms"]))
    except (ValueError, KeyError, TypeError) as error:
        raise KafkaStorageError(f"a consumer in coordination cannot be read: {error}") from None
