"""Which connection ends for a new one when there is no room: one client must not keep all others out."""

from collections import Counter
from collections.abc import Sequence


def connection_to_end(hosts: Sequence[str], newcomer: str) -> int | None:
    """The index of the connection that ends, among open ones from these addresses.

    It is the first one of the address with the most. None: no address has more than that of the new one would have.
    """
    counts = Counter(hosts)
    host, most = counts.most_common(1)[0] if counts else ("", 0)
    return hosts.index(host) if most > counts[newcomer] + 1 else None
