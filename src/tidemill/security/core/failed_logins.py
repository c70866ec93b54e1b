"""How fast logins may fail: a limit for each client address, so that guessing passwords stays slow.

Every failure takes one permit of its address. Permits come back with time. Without a permit, the answer to a failure
waits until there is one again. The number of remembered addresses is bounded: an address whose permits are all back is
forgotten.
"""

import ipaddress

FAILURES_AT_ONCE = 10
FAILURES_PER_S = 5.0
"""More failures than this of one address wait, after the first `FAILURES_AT_ONCE`."""
ADDRESSES_MAX = 10_000
_IPV6_NETWORK_BITS = 64
"""One customer of a network often has a whole /64."""


class FailedLogins:
    """The failures of each address. Times are of a clock that cannot be set."""

    def __init__(self) -> None:
        self._owed: dict[str, float] = {}
        """The time at which all permits of an address are back."""

    def wait_s(self, address: str, now_s: float) -> float:
        """Take a permit for a failure; how long its answer must wait."""
        full_s = max(self._owed.pop(address, now_s), now_s) + 1 / FAILURES_PER_S
        if len(self._owed) >= ADDRESSES_MAX:
            self._forget(now_s)
        self._owed[address] = full_s
        return max(0.0, full_s - now_s - FAILURES_AT_ONCE / FAILURES_PER_S)

    def __len__(self) -> int:
        return len(self._owed)

    def _forget(self, now_s: float) -> None:
        self._owed = {address: full_s for address, full_s in self._owed.items() if full_s > now_s}
        while len(self._owed) >= ADDRESSES_MAX:  # the one that has failed last the longest time ago
            del self._owed[next(iter(self._owed))]


def network_of(host: str) -> str:
    """What counts as one address: an IPv4 address, or the network of an IPv6 address."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host[:64]
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, _IPV6_NETWORK_BITS), strict=False))
