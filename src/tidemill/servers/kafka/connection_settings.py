"""The limits of connections that the settings of a broker name."""

import socket
from collections.abc import Iterable

from tidemill.model.broker_settings import BrokerSettings
from tidemill.model.errors import InvalidConfig
from tidemill.model.security_settings import LISTENER_PREFIX
from tidemill.model.topic_settings import INT32_MAX
from tidemill.security.core.connection_limits import AddressLimits, ConnectionLimits, ConnectionRate, parse_overrides
from tidemill.security.core.quotas import plain_address

RATE = "max.connection.creation.rate"


class ConnectionSettings:
    """The limits of one broker; its rate is shared by its listeners."""

    def __init__(self, settings: BrokerSettings, now_s: float) -> None:
        security = settings.security
        self._overrides = settings.overrides
        self._window_s = float(security.quota_window_size_seconds)
        self._burst_s = (security.quota_window_num - 1) * self._window_s
        self._most = security.max_connections_per_ip
        self._most_of = security.max_connections_per_ip_overrides
        rate = security.max_connection_creation_rate
        self._shared = () if rate >= INT32_MAX else (ConnectionRate(rate, self._burst_s, now_s),)

    def limits(self) -> ConnectionLimits:
        """The limits without the rates of listeners."""
        return ConnectionLimits(AddressLimits(self._most, _overrides(self._most_of)), self._burst_s, self._window_s)

    def rates(self, listener: str, now_s: float, *, is_protected: bool) -> tuple[ConnectionRate, ...]:
        """The rates of a listener; the one of the broker does not apply to a protected one."""
        own = self._overrides.get(f"{LISTENER_PREFIX}{listener.lower()}.{RATE}")
        of_listener = () if own is None else (ConnectionRate(int(own), self._burst_s, now_s),)
        return of_listener if is_protected else (*self._shared, *of_listener)


def _overrides(items: Iterable[str]) -> dict[str, int]:
    """The overrides by address; a host name means each of its addresses."""
    return {address: count for host, count in parse_overrides(items).items() for address in _addresses(host)}


def _addresses(host: str) -> list[str]:
    try:
        return [plain_address(host)]
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise InvalidConfig(
            f"max.connections.per.ip.overrides: the address of {host[:80]!r} is not known: {error.strerror or error}"
        ) from None
    return [plain_address(str(each[4][0]).partition("%")[0]) for each in found]
