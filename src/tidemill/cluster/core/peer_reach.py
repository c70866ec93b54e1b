"""Decides which peers are missing: brokers that are registered, and so have a session, but do not answer this broker.

A peer is missing when it has not answered for `missing_after_ms`, which is longer than a session: the registration of a
broker that stopped disappears before. It is back after `RETURNS` answers in a row. One failure after a pause of this
broker proves nothing, so `FAILURES` in a row are needed as well.

Every broker publishes its missing peers. A broker that one peer cannot reach is not the cause when most others can
reach it, so each broker judges by the lists of all:

- A peer that most other brokers miss, too, is itself the cause. It does not degrade this broker.
- A broker that most others miss is degraded, even if it can reach them itself.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

RETURNS = 3
FAILURES = 3
HOLD_MS = 8_000
"""Longer than the time in which every broker publishes that a peer is missing."""
MISSING_AFTER_MS_MIN = 3_000
MISSING_AFTER_TTLS = 1.5
"""After so many session lengths without an answer a peer is missing."""


@dataclass(slots=True)
class _Peer:
    """What is known of one peer."""

    heard_ms: int
    is_missing: bool = False
    answers: int = 0
    failures: int = 0


class PeerReach:
    """Which peers answer one broker."""

    def __init__(self, ttl_ms: int) -> None:
        self._missing_after_ms = max(MISSING_AFTER_MS_MIN, round(MISSING_AFTER_TTLS * ttl_ms))
        self._peers: dict[int, _Peer] = {}

    def keep(self, nodes: Collection[int], now_ms: int) -> None:
        """Follow the registered brokers; the time of a new one begins now."""
        self._peers = {node: self._peers.get(node) or _Peer(now_ms) for node in nodes}

    def answered(self, node_id: int, now_ms: int) -> None:
        """A peer has answered."""
        peer = self._peers.get(node_id)
        if peer is None:
            return
        peer.heard_ms = now_ms
        peer.answers += 1
        peer.failures = 0
        if peer.answers >= RETURNS:
            peer.is_missing = False

    def failed(self, node_id: int, now_ms: int) -> None:
        """A peer has not answered."""
        peer = self._peers.get(node_id)
        if peer is None:
            return
        peer.answers = 0
        peer.failures += 1
        if peer.failures >= FAILURES and now_ms - peer.heard_ms >= self._missing_after_ms:
            peer.is_missing = True

    def missing(self) -> frozenset[int]:
        """The peers that are missing now."""
        return frozenset(node for node, peer in self._peers.items() if peer.is_missing)

    def start_over(self, now_ms: int) -> None:
        """Forget what is known: without a session the list of brokers is old."""
        self._peers = {node: _Peer(now_ms) for node in self._peers}


class PeersVerdict(NamedTuple):
    """Why a broker is degraded by its connections; both are empty when it is not."""

    unreachable: tuple[int, ...] = ()
    """Peers that it cannot reach, and most others can."""
    unreached_by: tuple[int, ...] = ()
    """The brokers that cannot reach it, when these are most of the others."""

    def __bool__(self) -> bool:
        return bool(self.unreachable or self.unreached_by)

    def text(self) -> str:
        """The reason in words."""
        parts = []
        if self.unreachable:
            parts.append(f"it cannot reach {_named(self.unreachable)}, although they are registered")
        if self.unreached_by:
            parts.append(f"{_named(self.unreached_by)} cannot reach it")
        return f"brokers are missing: {'; '.join(parts)}; check the network between them" if parts else ""


class HeldVerdict:
    """A verdict that counts once there has been one for `HOLD_MS`: until then, the lists of others may be older."""

    def __init__(self) -> None:
        self._since_ms: int | None = None

    def add(self, verdict: PeersVerdict, now_ms: int) -> PeersVerdict:
        """Take the verdict of now; return what counts."""
        if not verdict:
            self._since_ms = None
            return verdict
        if self._since_ms is None:
            self._since_ms = now_ms
        return verdict if now_ms - self._since_ms >= HOLD_MS else PeersVerdict()


def judge_peers(node_id: int, missing: Mapping[int, Collection[int]]) -> PeersVerdict:
    """Judge from the missing peers of every registered broker that has published, and of this one."""
    others = {node: lost for node, lost in missing.items() if node != node_id}
    unreachable = tuple(sorted(peer for peer in missing.get(node_id, ()) if not _is_cause(peer, others)))
    by = tuple(sorted(node for node, lost in others.items() if node_id in lost))
    return PeersVerdict(unreachable, by if 2 * len(by) > len(others) else ())


def _is_cause(peer: int, others: Mapping[int, Collection[int]]) -> bool:
    """Whether most of the brokers other than this one and the peer miss the peer."""
    witnesses = [lost for node, lost in others.items() if node != peer]
    return 2 * sum(peer in lost for lost in witnesses) > len(witnesses)


def _named(nodes: tuple[int, ...]) -> str:
    return f"broker{'s' if len(nodes) > 1 else ''} {', '.join(map(str, nodes))}"
