"""Decides about new connections: how many an address has open, and how many are opened in a second (KIP-612).

Above a rate of the broker or of a listener, the listener accepts later. Above the quota of an address, the connection
is closed, after the client has waited. Both waits are one window at most. The listener of the brokers is exempt from
the rate of the broker when there are other listeners, so that clients cannot keep brokers apart.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidemill.model.errors import InvalidConfig
from tidemill.security.core.quotas import plain_address
from tidemill.security.core.token_bucket import TokenBucket

MEASURED_ADDRESSES_MAX = 10_000
"""The most addresses whose connections are counted for a quota; above it, the one that was idle for longest goes."""
ADDRESS_EXPIRY_S = 3600.0
_SHOWN_CHARS = 80


class Admission(NamedTuple):
    """Whether a connection is served; if not, the client waits until it is closed."""

    is_admitted: bool
    wait_s: float = 0.0


ADMITTED = Admission(True)
REFUSED = Admission(False)


class ConnectionRate:
    """How many connections may be opened in a second."""

    __slots__ = ("_bucket", "_burst", "_rate")

    def __init__(self, rate: float, burst_s: float, now_s: float) -> None:
        self._rate = rate
        self._burst = rate * burst_s
        self._bucket = TokenBucket(self._burst, now_s)

    def take(self, now_s: float) -> None:
        """Count a connection."""
        self._bucket.take(1.0, self._rate, self._burst, now_s)

    def wait_s(self, now_s: float) -> float:
        """How long to wait for the next one."""
        return self._bucket.wait_s(self._rate, self._burst, now_s, more=1.0)


class AddressLimits(NamedTuple):
    """How many connections an address may have open."""

    most: int
    overrides: Mapping[str, int]

    def of(self, address: str) -> int:
        """The limit of this address."""
        return self.overrides.get(address, self.most)


class ConnectionLimits:
    """The connections of one broker, by address."""

    def __init__(self, addresses: AddressLimits, burst_s: float, window_s: float) -> None:
        self._addresses = addresses
        self._rates: dict[str, tuple[ConnectionRate, ...]] = {}
        self._burst_s = burst_s
        self._window_s = window_s
        self._open: Counter[str] = Counter()
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def limit(self, listener: str, rates: tuple[ConnectionRate, ...]) -> None:
        """Apply rates to a listener."""
        self._rates[listener] = rates

    def open_from(self, address: str) -> int:
        """How many connections an address has open."""
        return self._open[address]

    def measured(self) -> int:
        """How many addresses are measured."""
        return len(self._buckets)

    def accept_wait_s(self, listener: str, now_s: float) -> float:
        """How long a listener waits before it accepts the next connection."""
        return min(self._window_s, max((rate.wait_s(now_s) for rate in self._rates.get(listener, ())), default=0.0))

    def accepted(self, listener: str, now_s: float) -> None:
        """Count an accepted connection by the rates of broker and listener."""
        for rate in self._rates.get(listener, ()):
            rate.take(now_s)

    def admit(self, address: str, quota: float | None, now_s: float) -> Admission:
        """Whether a connection of this address is served. `quota` is how many it may open in a second."""
        if quota is not None:
            burst = quota * self._burst_s
            bucket = self._bucket(address, burst, now_s)
            wait_s = bucket.wait_s(quota, burst, now_s, more=1.0)
            if wait_s > 0:
                return Admission(False, min(wait_s, self._window_s))
            bucket.take(1.0, quota, burst, now_s)
        if self._open[address] >= self._addresses.of(address):
            if not self._open[address]:
                del self._open[address]
            return REFUSED
        self._open[address] += 1
        return ADMITTED

    def release(self, address: str) -> None:
        """Forget a connection that was admitted."""
        self._open[address] -= 1
        if self._open[address] <= 0:
            del self._open[address]

    def expire(self, now_s: float) -> None:
        """Forget addresses that have opened no connection for a long time."""
        while self._buckets and now_s - next(iter(self._buckets.values())).last_used_s > ADDRESS_EXPIRY_S:
            self._buckets.popitem(last=False)

    def _bucket(self, address: str, burst: float, now_s: float) -> TokenBucket:
        bucket = self._buckets.get(address)
        if bucket is None:
            bucket = self._buckets[address] = TokenBucket(burst, now_s)
            if len(self._buckets) > MEASURED_ADDRESSES_MAX:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(address)
        return bucket


def parse_overrides(items: Iterable[str]) -> dict[str, int]:
    """The limits of `max.connections.per.ip.overrides` by host: `10.0.0.7:20` or `[::1]:5`."""
    found: dict[str, int] = {}
    for item in items:
        host, colon, count = item.strip().rpartition(":")
        host = host.strip().removeprefix("[").removesuffix("]")
        if not colon or not host or not (count.strip().isascii() and count.strip().isdecimal()):
            raise InvalidConfig(
                f"max.connections.per.ip.overrides: {item[:_SHOWN_CHARS]!r} is not address:count; write 10.0.0.7:20"
            )
        found[_in_short(host)] = int(count)
    return found


def _in_short(host: str) -> str:
    try:
        return plain_address(host)
    except ValueError:
        return host
