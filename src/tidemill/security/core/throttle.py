"""Measures what each client uses, and decides for how long it must wait.

Each quota has a token bucket, and a client waits until the bucket is not overdrawn. Its burst is what the windows of
Apache Kafka allow a client that was idle (`quota.window.num` and `quota.window.size.seconds`), so the first wait is as
long as there.

A quota is shared by all connections of the clients that it is for, so the buckets are kept by quota and not by
connection. They are in memory only: a client that was idle for EXPIRY_S is forgotten, and above SENSORS_MAX the one
that was idle for longest. Long client ids share a bucket by their first characters, so they take no more memory.
"""

from collections import OrderedDict
from typing import NamedTuple

from tidemill.security.core.quotas import CLIENT_KINDS, ENTITY_NAME_CHARS_MAX, Level, QuotaKind, QuotaTable
from tidemill.security.core.token_bucket import TokenBucket

EXPIRY_S = 3600.0
"""Clients that were idle for so long are forgotten. No client waits for longer."""
SENSORS_MAX = 10_000
"""The most buckets of one kind of quota."""
_PERCENT = 100.0


class ThrottleCount(NamedTuple):
    """How often clients were throttled, and for how long in all."""

    responses: int = 0
    seconds: float = 0.0


class ClientBucket(NamedTuple):
    """The bucket of a client at this time."""

    bucket: TokenBucket
    rate: float
    burst: float

    def take(self, amount: float, now_s: float) -> None:
        """Count an amount."""
        self.bucket.take(amount, self.rate, self.burst, now_s)

    def wait_s(self, now_s: float, more: float = 0.0) -> float:
        """How long the client must wait, if `more` is counted first."""
        return min(EXPIRY_S, self.bucket.wait_s(self.rate, self.burst, now_s, more=more))

    def is_full(self, now_s: float) -> bool:
        """Whether the client has used nothing for a while."""
        return self.bucket.tokens(self.rate, self.burst, now_s) >= self.burst


class Throttle:
    """The buckets of all clients of one broker. Times are of a clock that cannot be set."""

    def __init__(self, window_count: int, window_s: float) -> None:
        self._window_s = window_s
        self._burst_s = (window_count - 1) * window_s
        self._table = QuotaTable()
        self._buckets: dict[QuotaKind, OrderedDict[Level, TokenBucket]] = {kind: OrderedDict() for kind in CLIENT_KINDS}
        self.is_enabled = False
        """Whether any client has a quota: without one, servers skip everything here."""
        self.measures_time = False
        """Whether any client has a quota of its share of the broker's time."""
        self.counts: dict[QuotaKind, ThrottleCount] = {}

    @property
    def table(self) -> QuotaTable:
        """The quotas."""
        return self._table

    def set_table(self, table: QuotaTable) -> None:
        """Use other quotas. What clients have overdrawn is forgotten, because it was measured by the old ones."""
        self._table = table
        self.is_enabled = any(table.limits(kind) for kind in CLIENT_KINDS)
        self.measures_time = table.limits(QuotaKind.REQUEST)
        for buckets in self._buckets.values():
            for bucket in buckets.values():
                bucket.limit_debt(0.0)

    def sensors(self) -> int:
        """How many buckets are kept."""
        return sum(map(len, self._buckets.values()))

    def record(self, kind: QuotaKind, user: str, client_id: str, amount: float, now_s: float) -> float:
        """Count an amount; the seconds for which the client must wait."""
        found = self._find(kind, user, client_id, now_s)
        if found is None:
            return 0.0
        found.take(amount, now_s)
        return self._counted(kind, found.wait_s(now_s))

    def record_time(self, user: str, client_id: str, spent_s: float, now_s: float) -> float:
        """Count time of the broker; the wait is one window at most, as in Apache Kafka."""
        self.spend_time(user, client_id, spent_s, now_s)
        found = self._find(QuotaKind.REQUEST, user, client_id, now_s)
        if found is None:
            return 0.0
        return self._counted(QuotaKind.REQUEST, min(found.wait_s(now_s), self._window_s))

    def spend_time(self, user: str, client_id: str, spent_s: float, now_s: float) -> None:
        """Count time of the broker. A client that has overdrawn more than its burst owes no more than that."""
        found = self._find(QuotaKind.REQUEST, user, client_id, now_s)
        if found is not None:
            found.take(spent_s * _PERCENT, now_s)
            found.bucket.limit_debt(found.burst)

    def delay(self, kind: QuotaKind, user: str, client_id: str, now_s: float) -> float:
        """The seconds for which the client must wait still, before it uses anything more."""
        found = self._find(kind, user, client_id, now_s)
        return 0.0 if found is None else found.wait_s(now_s)

    def offer(self, kind: QuotaKind, user: str, client_id: str, amount: float, now_s: float) -> float:
        """Count an amount only if the client need not wait for it; the seconds that it must wait otherwise.

        An amount above the whole burst is counted when the client has used nothing for a while: it could never be sent
        otherwise. The client waits afterwards.
        """
        found = self._find(kind, user, client_id, now_s)
        if found is None or not amount:
            return 0.0
        wait_s = found.wait_s(now_s, amount)
        if wait_s and not found.is_full(now_s):
            return self._counted(kind, min(wait_s, found.wait_s(now_s, found.burst)))
        found.take(amount, now_s)
        return 0.0

    def burst(self, kind: QuotaKind, user: str, client_id: str) -> int | None:
        """The largest amount that the quota allows at once; None without a quota."""
        found = self._table.of_client(kind, user, client_id[:ENTITY_NAME_CHARS_MAX])
        return None if found is None else max(1, int(found.value * self._burst_s))

    def spend(self, kind: QuotaKind, user: str, client_id: str, amount: float, now_s: float) -> None:
        """Count an amount without a wait; a negative one takes back what was counted."""
        found = self._find(kind, user, client_id, now_s)
        if found is not None:
            found.take(amount, now_s)

    def count_wait(self, kind: QuotaKind, wait_s: float) -> None:
        """Count a response that lets its client wait."""
        self._counted(kind, wait_s)

    def expire(self, now_s: float) -> None:
        """Forget clients that were idle for EXPIRY_S. The buckets are in the order of their last use."""
        for buckets in self._buckets.values():
            while buckets and now_s - next(iter(buckets.values())).last_used_s > EXPIRY_S:
                buckets.popitem(last=False)

    def _find(self, kind: QuotaKind, user: str, client_id: str, now_s: float) -> ClientBucket | None:
        quota = self._table.of_client(kind, user, client_id[:ENTITY_NAME_CHARS_MAX])
        if quota is None:
            return None
        burst = quota.value * self._burst_s
        buckets = self._buckets[kind]
        bucket = buckets.get(quota.shared_by)
        if bucket is None:
            bucket = buckets[quota.shared_by] = TokenBucket(burst, now_s)
            if len(buckets) > SENSORS_MAX:
                buckets.popitem(last=False)
        else:
            buckets.move_to_end(quota.shared_by)
        return ClientBucket(bucket, quota.value, burst)

    def _counted(self, kind: QuotaKind, wait_s: float) -> float:
        if wait_s > 0:
            responses, seconds = self.counts.get(kind, ThrottleCount())
            self.counts[kind] = ThrottleCount(responses + 1, seconds + wait_s)
        return wait_s
