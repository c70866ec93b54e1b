"""A member of a classic group, and which protocol a set of members agrees on."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tidemill.groups.core.entries import MemberSnapshot
from tidemill.groups.core.messages import JoinedMember, JoinRequest, Protocols, Ticket


@dataclass(slots=True)
class GroupMember:
    """One consumer of a group. `deadline_ms` is when it counts as gone unless it is heard of before."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    deadline_ms: int = 0
    is_new: bool = False
    join_ticket: Ticket | None = None
    sync_ticket: Ticket | None = None

    @classmethod
    def of_request(cls, member_id: str, request: JoinRequest) -> "GroupMember":
        """The member that a join makes."""
        return cls(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
        )

    @classmethod
    def of_snapshot(cls, snapshot: MemberSnapshot, protocol: str) -> "GroupMember":
        """The member that the journal remembers; only the subscription for the chosen protocol is kept there."""
        return cls(
            snapshot.member_id,
            snapshot.instance_id,
            snapshot.client_id,
            snapshot.client_host,
            snapshot.session_timeout_ms,
            snapshot.rebalance_timeout_ms,
            ((protocol, snapshot.subscription),),
            snapshot.assignment,
        )

    def update(self, request: JoinRequest) -> None:
        """Take over what a later join says."""
        self.client_id, self.client_host = request.client_id, request.client_host
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.protocols = request.protocols

    def subscription(self, protocol: str | None) -> bytes:
        """What the member says to this protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def snapshot(self, protocol: str | None, assignment: bytes | None = None) -> MemberSnapshot:
        """What the journal keeps of it."""
        return MemberSnapshot(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.subscription(protocol),
            self.assignment if assignment is None else assignment,
        )

    def as_joined(self, protocol: str | None) -> JoinedMember:
        """What the leader is told of it."""
        return JoinedMember(self.member_id, self.instance_id, self.subscription(protocol))

    @property
    def can_expire(self) -> bool:
        """A member that waits for its answer is alive, except one that nobody waits for: a first join."""
        waiting = self.join_ticket is not None or self.sync_ticket is not None
        return self.is_new or not waiting


def choose_protocol(all_protocols: Iterable[Protocols]) -> str | None:
    """The protocol that every member supports and most prefer; on a tie, the first in the first voter's order."""
    members = [[name for name, _ in protocols] for protocols in all_protocols]
    supported = Counter(name for names in members for name in set(names))
    votes: Counter[str] = Counter()
    for names in members:
        vote = next((name for name in names if supported[name] == len(members)), None)
        if vote is None:
            return None
        votes[vote] += 1
    return max(votes, key=lambda name: votes[name]) if votes else None
