"""All transactional ids of this coordinator.

The table changes only by `replay`: live traffic first writes a record to the journal and then replays it, and start-up
replays all of them. So both end in the same state. Open ids, which may time out, and ids with missing markers are also
indexed separately, so that a tick costs nothing for the rest.

A monotonic clock (`steady_ms`) measures timeouts. Setting the wall clock must not abort a transaction that has just
started, nor keep readers waiting for one that is over. Transactions that started before a restart are aged by the wall
clock, because only the journal has their start time. They never get more time than their producer asked for.
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
        """When the open transactions time out, by the monotonic clock."""
        self._preparing: set[str] = set()

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self._known.values())

    def get(self, transactional_id: str) -> Transaction | None:
        """Return the state of an id."""
        return self._known.get(transactional_id)

    def replay(self, key: bytes | None, value: bytes | None, steady_ms: int, now_ms: int | None = None) -> None:
        """Apply one journal record.

        `now_ms` is the wall clock time if the record is read at start, not just written.
        """
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

    def drop(self, is_released: Callable[[str], bool]) -> None:
        """Forget ids that another coordinator owns now; nothing is written."""
        for transactional_id in [name for name in self._known if is_released(name)]:
            del self._known[transactional_id]
            self._ends_ms.pop(transactional_id, None)
            self._preparing.discard(transactional_id)

    def late(self, steady_ms: int) -> list[str]:
        """Return the ids whose open transaction has timed out."""
        return sorted(name for name, ends_ms in self._ends_ms.items() if steady_ms > ends_ms)

    def is_late(self, transactional_id: str, steady_ms: int) -> bool:
        """Whether this id has an open transaction that has timed out."""
        return steady_ms > self._ends_ms.get(transactional_id, steady_ms)

    def unfinished(self) -> list[str]:
        """Return the ids whose markers are not all known to be written."""
        return sorted(self._preparing)

    def forgettable(self, now_ms: int, expiry_ms: int) -> list[str]:
        """Return the ids that were idle for so long that they may be deleted."""
        return [known.transactional_id for known in self if forgettable(known, now_ms, expiry_ms)]

    def select(
        self, *, states: AbstractSet[str], producer_ids: AbstractSet[int], older_ms: int, now_ms: int
    ) -> list[Transaction]:
        """Return the transactions that pass every filter; an empty set and a negative duration pass all."""
        return [
            known
            for known in self
            if (not states or known.state.title in states)
            and (not producer_ids or known.identity.producer_id in producer_ids)
            and (older_ms < 0 or (known.started_ms >= 0 and now_ms - known.started_ms > older_ms))
        ]
