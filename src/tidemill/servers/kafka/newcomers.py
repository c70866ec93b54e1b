"""Bounds the connections that cost a client nothing: those that are silent on a TLS listener, or do not log in.

A flood of them must not keep others out. When there are too many, the oldest one of the address with the most is
dropped: an honest client sends its first message at once, and rarely shares its address with a flood.
"""

from typing import Generic, TypeVar

T = TypeVar("T")


class Newcomers(Generic[T]):
    """The connections that have not authenticated, by address, in the order of their arrival."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_address: dict[str, dict[T, None]] = {}
        self._addresses: dict[T, str] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    def add(self, connection: T, address: str) -> T | None:
        """Add a connection; returns the one that has to be dropped for it."""
        dropped = None
        if len(self._addresses) >= self._most:
            crowd = max(self._by_address.values(), key=len)
            dropped = next(iter(crowd))
            self.remove(dropped)
        self._by_address.setdefault(address, {})[connection] = None
        self._addresses[connection] = address
        return dropped

    def remove(self, connection: T) -> None:
        """Remove a connection that has authenticated or is closed; nothing happens if it is not known."""
        address = self._addresses.pop(connection, None)
        if address is None:
            return
        crowd = self._by_address[address]
        del crowd[connection]
        if not crowd:
            del self._by_address[address]
