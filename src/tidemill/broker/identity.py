"""The shared facts of a cluster in coordination: its id, its secret, its stream servers, and producer ids.

Producer ids are allocated in blocks. The end of the block is durable before its first id is used, so no id is used
twice, whatever crashes. The rest of a block is lost with the process, which is fine with 2^63 ids.
"""

import asyncio
import hmac
from base64 import urlsafe_b64encode
from uuid import UUID

from tidemill.cluster.interface import Coordination
from tidemill.model.errors import InvalidConfig

CLUSTER_ID = "cluster-id"
SECRET = "cluster-secret"  # noqa: S105 -- the name of a key, not a secret
PRODUCER_IDS = "producer-ids"
SERVERS = "stream-servers"
PRODUCER_ID_BLOCK = 1_000
RETRIES_MAX = 100


async def agree(coordination: Coordination, key: str, value: bytes) -> bytes:
    """The value of the key; the given value if there was none."""
    await coordination.compare_and_put(key, value, 0)
    entry = await coordination.get(key)
    if entry is None:
        raise InvalidConfig(f"coordination has no {key} although it was just written; check that etcd keeps its data")
    return entry.value


async def cluster_id(coordination: Coordination, fresh: UUID) -> str:
    """The cluster's id, 22 characters in Kafka's format; created once."""
    return (await agree(coordination, CLUSTER_ID, urlsafe_b64encode(fresh.bytes).rstrip(b"="))).decode()


async def secret(coordination: Coordination, given: str | None, cluster: str, fresh: UUID) -> bytes:
    """The secret with which the brokers of this cluster authenticate to each other.

    Without a configured secret, brokers use one that is stored in coordination, which only brokers can reach. With one,
    coordination stores only a proof of it, so brokers with different secrets fail at start.
    """
    if not coordination.shared:
        return (given or "").encode()
    if given is None:
        known = await agree(coordination, SECRET, b"kept:" + fresh.hex.encode())
        if not known.startswith(b"kept:"):
            raise InvalidConfig("the brokers of this cluster have a secret; give it with --cluster-secret")
        return known
    proof = b"proof:" + hmac.digest(given.encode(), f"tidemill {cluster}".encode(), "sha256").hex().encode()
    if not hmac.compare_digest(await agree(coordination, SECRET, proof), proof):
        raise InvalidConfig("the cluster secret differs from the other brokers; give all the same --cluster-secret")
    return given.encode()


async def same_servers(coordination: Coordination, mine: str) -> None:
    """Reject a broker whose stream servers differ from those of the earlier brokers, or that has none (empty).

    Any broker may have to lead the topics on them.
    """
    entry = await coordination.get(SERVERS)
    known = entry.value.decode() if entry else ""
    if not known and mine:
        known = (await agree(coordination, SERVERS, mine.encode())).decode()
    if known != mine:
        raise InvalidConfig(f"the other brokers store streams at {known}; start all with the same --streams")


class ProducerIds:
    """Allocates producer ids, each once."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        self._next = 0
        self._end = 0
        self._turn = asyncio.Lock()

    async def take(self) -> int:
        """A new, unused id."""
        async with self._turn:
            if self._next == self._end:
                self._next = await self._take_block()
                self._end = self._next + PRODUCER_ID_BLOCK
            self._next += 1
            return self._next - 1

    async def _take_block(self) -> int:
        for _ in range(RETRIES_MAX):
            entry = await self._coordination.get(PRODUCER_IDS)
            start = int(entry.value) if entry else 0
            revision = entry.revision if entry else 0
            end = str(start + PRODUCER_ID_BLOCK).encode()
            if await self._coordination.compare_and_put(PRODUCER_IDS, end, revision) is not None:
                return start
        raise InvalidConfig(f"no producer ids after {RETRIES_MAX} tries: other brokers took them first; try again")
