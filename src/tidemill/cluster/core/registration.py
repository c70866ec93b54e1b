"""Registration: what a live broker tells the others, under its session.

The incarnation is new with every start: whoever remembers a broker by number and incarnation does not take the one that
came back for the one that was lost. The directory is the id of its data directory: the same directory means that the
process before is dead, for only one may hold it; another one means that what the broker had is not there any more.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import NamedTuple
from uuid import UUID

from tidemill.model.errors import KafkaStorageError

BROKERS = "brokers/"

HEALTHY, DEGRADED, INACTIVE = "healthy", "degraded", "inactive"
"""How a broker is: well, at work with something broken, or known but not there."""

OVERSEER, CARRIER = "overseer", "carrier"


class BrokerAddress(NamedTuple):
    """Where clients find a broker."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Endpoint(NamedTuple):
    """Where a door is found."""

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
    grpc: Endpoint | None = None
    http: Endpoint | None = None
    roles: tuple[str, ...] = (OVERSEER, CARRIER)
    state: str = HEALTHY
    reason: str = ""
    """Why it is not healthy."""
    room: bool = True
    """Whether its disk has room for records; without, it leads only what nobody else can lead."""
    consumers: Mapping[str, int] = field(default_factory=dict)
    """How many consumers of each timeline, and of each topic over gRPC, it serves."""
    shares_timelines: bool = False
    """Whether its timelines are in a store that others can share."""

    @property
    def carries(self) -> bool:
        """Whether it may hold partitions."""
        return CARRIER in self.roles

    def but(self, *, state: str, reason: str, room: bool, consumers: Mapping[str, int]) -> "Registration":
        """The same broker in another state, with other work."""
        return replace(self, state=state, reason=reason, room=room, consumers=dict(consumers))


def broker_key(node_id: int) -> str:
    """Where a broker's registration is kept."""
    return f"{BROKERS}{node_id}"


def encode_registration(registration: Registration) -> bytes:
    """A registration as it is kept in coordination."""
    document = asdict(registration)
    return json.dumps(document, separators=(",", ":"), default=str).encode()


def decode_registration(document: bytes) -> Registration:
    """What `encode_registration` wrote; what a newer broker adds is passed over."""
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
            **endpoints,
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KafkaStorageError(f"a broker in coordination cannot be read: {error}") from None
