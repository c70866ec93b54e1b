"""Records of known brokers, which remain in coordination after a registration ends.

A registration is deleted with its session. This record stays until an operator deletes it, so a lost broker is reported
as missing. It also has the id of the broker's data directory. A broker that returns with another directory no longer
has the records for which it was in sync.
"""

import json
from typing import NamedTuple
from uuid import UUID

from tidemill.cluster.core.registration import Endpoint, Registration
from tidemill.model.errors import KafkaStorageError

KNOWN = "known/"


class KnownBroker(NamedTuple):
    """A broker that is or was a member."""

    node_id: int
    directory: UUID
    rack: str | None
    roles: tuple[str, ...]
    kafka: Endpoint | None


def known_from(registration: Registration) -> KnownBroker:
    """The record of a registration."""
    return KnownBroker(
        registration.node_id,
        registration.directory,
        registration.rack,
        registration.roles,
        registration.kafka,
    )


def known_key(node_id: int) -> str:
    """The key of a broker's record."""
    return f"{KNOWN}{node_id}"


def encode_known(known: KnownBroker) -> bytes:
    """Encode a record for coordination."""
    return json.dumps(known._asdict(), separators=(",", ":"), default=str).encode()


def decode_known(document: bytes) -> KnownBroker:
    """Decode the output of `encode_known`; fields of newer brokers are ignored."""
    try:
        read = json.loads(document)
        kafka = Endpoint(*read["kafka"]) if read["kafka"] else None
        return KnownBroker(int(read["node_id"]), UUID(read["directory"]), read["rack"], tuple(read["roles"]), kafka)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KafkaStorageError(f"a known broker in coordination cannot be read: {error}") from None
