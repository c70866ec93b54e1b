"""Every transactional id that this coordinator knows.

The table changes by `replay` alone: live traffic first writes a record to the journal and then replays it, start-up
replays all of them, so both end in the same state. Ids whose state wants attention without a request (open ones, which
may time out, and those whose markers are not finished) are also kept apart, so that a tick costs nothing for the rest.

When an open one is late is told by a clock that nobody can set (`steady_ms`): one that is set must not abort what has
just begun, nor keep readers waiting for what is over. How old a transaction is that another life of this coordinator
began, the journal alone can tell, by the time of the day; it never gets more time than its producer asked for.
"""

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet

from tidemill.transactions.core.records import read_key, read_value
from tidemill.transactions.core.rules import forgettable
from tidemill.transactions.core.state import Transaction, TransactionStatus


class TransactionTable:
    """The newest state by transactional id."""

    def __init__(self) -> None:
        self._known: dict[str, Transaction] = {}
        self._ends_ms: dict[str, int] = {}
        """When the open ones are late, by the steady clock."""
        self._preparing: set[str] = set()

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self._known.values())

    def get(self, transactional_id: str) -> Transaction | None:
        """What is known of an id."""
        return self._known.get(transactional_id)

    def replay(self, key: bytes | None, value: bytes | None, steady_ms: int, now_ms: int | None = None) -> None:
        """Take one journal record in; `now_ms`, the time of the day, when it is read and not just written."""
        transactional_id = read_key(key)
        if transactional_id is None:
            return
        ends_ms = self._ends_ms.pop(transactional_id, None)
        self._preparing.discard(transactional_id)
        if value is None:
            self._known.pop(transactional_id, None)
            return
        known = self._known[transactional_id] = read_value(transactional_id, value)
        if known.state is TransactionStatus.ONGOING:
            if now_ms is not None:
                ends_ms = steady_ms + min(max(known.started_ms + known.timeout_ms - now_ms, 0), known.timeout_ms)
            self._ends_ms[transactional_id] = steady_ms + known.timeout_ms if ends_ms is None else ends_ms
        elif known.state.preparing:
            self._preparing.add(transactional_id)

    def drop(self, gone: Callable[[str], bool]) -> None:
        """Forget ids that another coordinator keeps now; nothing is written."""
        for transactional_id in [name for name in self._known if gone(name)]:
            del self._known[transactional_id]
            self._ends_ms.pop(transactional_id, None)
            self._preparing.discard(transactional_id)

    def late(self, steady_ms: int) -> list[str]:
        """Ids whose open transaction has run out of time."""
        return sorted(name for name, ends_ms in self._ends_ms.items() if steady_ms > ends_ms)

    def is_late(self, transactional_id: str, steady_ms: int) -> bool:
        """Whether this one has an open transaction that has run out of time."""
        return steady_ms > self._ends_ms.get(transactional_id, steady_ms)

    def unfinished(self) -> list[str]:
        """Ids whose markers are not all known to be written."""
        return sorted(self._preparing)

    def forgettable(self, now_ms: int, expiry_ms: int) -> list[str]:
        """Ids that have rested for so long that they may be forgotten."""
        return [known.transactional_id for known in self if forgettable(known, now_ms, expiry_ms)]

    def select(
        self, *, states: AbstractSet[str], producer_ids: AbstractSet[int], older_ms: int, now_ms: int
    ) -> list[Transaction]:
        """Those that pass every filter; an empty set and a negative duration let all pass."""
        return [
            known
            for known in self
            if (not states or known.state.title in states)
            and (not producer_ids or known.identity.producer_id in producer_ids)
            and (older_ms < 0 or (known.started_ms >= 0 and now_ms - known.started_ms > older_ms))
        ]
