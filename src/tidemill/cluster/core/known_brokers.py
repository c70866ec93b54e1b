"""Brokers that are known: what stays of a registration when its session is over.

A registration vanishes with its broker. This record stays until somebody takes it away on purpose, so that a broker
that is lost is missed and not forgotten. It also says which data directory the broker had: one that comes back with
another has nothing of what it had in sync.
"""

import json
from typing import NamedTuple
from uuid import UUID

from tidemill.cluster.core.registration import Endpoint, Registration
from tidemill.model.errors import KafkaStorageError

KNOWN = "known/"


class KnownBroker(NamedTuple):
    """A broker that was there once."""

    node_id: int
    directory: UUID
    rack: str | None
    roles: tuple[str, ...]
    kafka: Endpoint | None


def known_from(registration: Registration) -> KnownBroker:
    """What stays of a registration."""
    return KnownBroker(
        registration.node_id,
        registration.directory,
        registration.rack,
        registration.roles,
        registration.kafka,
    )


def known_key(node_id: int) -> str:
    """Where the record of a broker is kept."""
    return f"{KNOWN}{node_id}"


def encode_known(known: KnownBroker) -> bytes:
    """A record as it is kept in coordination."""
    return json.dumps(known._asdict(), separators=(",", ":"), default=str).encode()


def decode_known(document: bytes) -> KnownBroker:
    """What `encode_known` wrote; what a newer broker adds is passed over."""
    try:
        read = json.loads(document)
        kafka = Endpoint(*read["kafka"]) if read["kafka"] else None
        return KnownBroker(int(read["node_id"]), UUID(read["directory"]), read["rack"], tuple(read["roles"]), kafka)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KafkaStorageError(f"a known broker in coordination cannot be read: {error}") from None
