"""Registration: what a live broker publishes about itself, under its session.

The incarnation is new with every start. Other brokers identify a broker by number and incarnation, so they do not
confuse a restarted broker with the one that was lost. The directory is the id of the data directory. The same directory
means that the previous process is dead, because only one process can hold it. A different directory means that the
broker's earlier records are lost.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import NamedTuple
from uuid import UUID

from tidemill.model.errors import KafkaStorageError

BROKERS = "brokers/"

HEALTHY, DEGRADED, INACTIVE = "healthy", "degraded", "inactive"
"""The state of a broker: healthy, working with a failure, or registered and unusable."""

OVERSEER, CARRIER = "overseer", "carrier"


class BrokerAddress(NamedTuple):
    """The address of a broker for clients."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Endpoint(NamedTuple):
    """The address of a server of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Registration:
    """One broker of the cluster."""

    node_id: int
    incarnation: UUID
    directory: UUID
    rack: str | None = None
    kafka: Endpoint | None = None
    """The listener for other brokers."""
    listeners: Mapping[str, Endpoint] = field(default_factory=dict)
    """The addresses for clients by the name of the listener."""
    grpc: Endpoint | None = None
    http: Endpoint | None = None
    roles: tuple[str, ...] = (OVERSEER, CARRIER)
    state: str = HEALTHY
    reason: str = ""
    """Why the broker is not healthy."""
    room: bool = True
    """Whether its disk has free space. Without it, the broker leads only partitions that no other broker can lead."""
    consumers: Mapping[str, int] = field(default_factory=dict)
    """The number of consumers that it serves, for each timeline and for each topic over gRPC."""
    shares_timelines: bool = False
    """Whether its timelines are in a store that other brokers can share."""

    @property
    def carries(self) -> bool:
        """Whether it may hold partitions."""
        return CARRIER in self.roles

    def address_for(self, listener: str) -> Endpoint | None:
        """The address for clients of a listener; a broker of an older version has one address for all."""
        return self.listeners.get(listener) if self.listeners else self.kafka

    def but(self, *, state: str, reason: str, room: bool, consumers: Mapping[str, int]) -> "Registration":
        """The same broker with another state and other consumers."""
        return replace(self, state=state, reason=reason, room=room, consumers=dict(consumers))


def broker_key(node_id: int) -> str:
    """The key of a broker's registration."""
    return f"{BROKERS}{node_id}"


def encode_registration(registration: Registration) -> bytes:
    """Encode a registration for coordination."""
    document = asdict(registration)
    return json.dumps(document, separators=(",", ":"), default=str).encode()


def decode_registration(document: bytes) -> Registration:
    """Decode the output of `encode_registration`; fields of newer brokers are ignored."""
    try:
        read = json.loads(document)
        endpoints = {name: Endpoint(*read[name]) if read.get(name) else None for name in ("kafka", "grpc", "http")}
        return Registration(
            int(read["node_id"]),
            UUID(read["incarnation"]),
            UUID(read["directory"]),
            rack=read["rack"],
            roles=tuple(read["roles"]),
            state=read["state"],
            reason=read.get("reason", ""),
            room=bool(read.get("room", True)),
            consumers=dict(read.get("consumers", {})),
            shares_timelines=bool(read.get("shares_timelines", False)),
            listeners={name: Endpoint(*each) for name, each in read.get("listeners", {}).items()},
            **endpoints,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KafkaStorageError(f"a broker in coordination cannot be read: {error}") from None
