"""The leases that a consumer holds: those that arrived and were neither completed nor released."""

from tidemill.wire.grpc import timeline_pb2 as wire

ENDING = frozenset({wire.ACTION_COMPLETE, wire.ACTION_RELEASE})
PRUNE_AT = 20_000
"""With so many, those that have expired are dropped."""


class HeldLeases:
    """The ends of the leases, by the message and the token, on this machine's monotonic clock."""

    def __init__(self) -> None:
        self._ends_s: dict[tuple[int, int], float] = {}

    def add(self, seq: int, token: int, ends_s: float, now_s: float) -> None:
        """A lease has arrived."""
        self._ends_s[seq, token] = ends_s
        if len(self._ends_s) > PRUNE_AT:
            self.count(now_s)

    def operated(self, operation: wire.Operation, now_s: float, *, succeeded: bool) -> None:
        """An operation on a lease has an outcome."""
        key = operation.seq, operation.token
        if operation.action in ENDING:
            self._ends_s.pop(key, None)
        elif succeeded and key in self._ends_s:
            self._ends_s[key] = now_s + operation.ms / 1_000

    def count(self, now_s: float) -> int:
        """How many have not expired."""
        self._ends_s = {key: ends_s for key, ends_s in self._ends_s.items() if ends_s > now_s}
        return len(self._ends_s)
