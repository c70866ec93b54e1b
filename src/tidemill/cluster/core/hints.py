"""Decides which clients of a broker get a hint to move: the moves of `moves.py`, spread over time.

A plan is made when the balance of a topic has been off for `settle_ms`, at most once in a window. Its hints go to the
next clients that ask, one for each. Until the window ends there is no further plan: the counts of all brokers must show
the result first. A client that was hinted and is still here does not follow hints. Others are asked before it, for
`PATIENCE_WINDOWS`.

That fewer brokers suffice is not urgent, and it may be the cause of the next overload. So clients move for this reason
only after `SPARE_WINDOWS` without an unfit broker, and this time doubles with each one. Otherwise clients that are too
much for a few brokers would move to and fro without end.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tidemill.cluster.core.moves import ClientMove, MoveReason, plan_moves
from tidemill.cluster.core.selector import Candidate

CHECK_MS = 1_000
SETTLE_MS_MAX = 5_000
SETTLE_PART = 4
"""The balance must be off for a quarter of a window, at most for `SETTLE_MS_MAX`."""
PATIENCE_WINDOWS = 10
SPARE_WINDOWS, SPARE_WINDOWS_MAX = 2, 512
TOPICS_MAX = 10_000
"""The most topics that are watched at a time."""


@dataclass(slots=True)
class _TopicHints:
    """The hints of one topic."""

    asked_ms: int
    checked_ms: int | None = None
    off_since_ms: int | None = None
    planned_ms: int | None = None
    left: list[ClientMove] = field(default_factory=list)
    """The hints of the last plan that no client has got yet."""
    hinted_ms: dict[str, int] = field(default_factory=dict)
    """The clients that got one."""
    calm_since_ms: int | None = None
    """Since when every broker that serves the topic is good; None while one is not."""
    spare_windows: int = SPARE_WINDOWS


class HintPlanner:
    """The hints of one broker."""

    def __init__(self, node_id: int, window_ms: int) -> None:
        self.window_ms = window_ms
        self._node_id = node_id
        self._settle_ms = min(SETTLE_MS_MAX, window_ms // SETTLE_PART)
        self._topics: dict[str, _TopicHints] = {}

    def hint(
        self, topic: str, client_id: str, now_ms: int, candidates: Callable[[], Iterable[Candidate]]
    ) -> ClientMove | None:
        """The move for a client of this broker that asks now, or None if it should stay."""
        hints = self._topics.get(topic)
        if hints is None:
            self._forget_old(now_ms)
            if len(self._topics) >= TOPICS_MAX:
                return None
            hints = self._topics[topic] = _TopicHints(now_ms)
        hints.asked_ms = now_ms
        if hints.checked_ms is None or now_ms - hints.checked_ms >= min(CHECK_MS, self._settle_ms):
            hints.checked_ms = now_ms
            self._plan(topic, hints, now_ms, candidates)
        if not hints.left or client_id in hints.hinted_ms:
            return None
        hints.hinted_ms[client_id] = now_ms
        return hints.left.pop(0)

    def _plan(self, topic: str, hints: _TopicHints, now_ms: int, candidates: Callable[[], Iterable[Candidate]]) -> None:
        if hints.planned_ms is not None and now_ms - hints.planned_ms < self.window_ms:
            return
        hints.left = []
        oldest_ms = now_ms - PATIENCE_WINDOWS * self.window_ms
        hints.hinted_ms = {client: at_ms for client, at_ms in hints.hinted_ms.items() if at_ms > oldest_ms}
        known = list(candidates())
        may_spare = self._is_calm(topic, hints, now_ms, known)
        moves = [
            move
            for move in plan_moves(topic, known)
            if move.source == self._node_id and (may_spare or move.reason is not MoveReason.SPARE)
        ]
        if not moves:
            hints.off_since_ms = None
        elif hints.off_since_ms is None:
            hints.off_since_ms = now_ms
        elif now_ms - hints.off_since_ms >= self._settle_ms:
            hints.left = [move._replace(clients=1) for move in moves for _ in range(move.clients)]
            hints.planned_ms, hints.off_since_ms = now_ms, None

    def _is_calm(self, topic: str, hints: _TopicHints, now_ms: int, known: list[Candidate]) -> bool:
        """Whether no broker of the topic has been unfit for long enough."""
        if any(not one.is_good and one.consumers.get(topic) for one in known):
            if hints.calm_since_ms is not None:
                hints.spare_windows = min(SPARE_WINDOWS_MAX, 2 * hints.spare_windows)
            hints.calm_since_ms = None
            return False
        if hints.calm_since_ms is None:
            hints.calm_since_ms = now_ms
        return now_ms - hints.calm_since_ms >= hints.spare_windows * self.window_ms

    def _forget_old(self, now_ms: int) -> None:
        """Drop topics whose clients have left."""
        oldest_ms = now_ms - PATIENCE_WINDOWS * self.window_ms
        if len(self._topics) >= TOPICS_MAX:
            self._topics = {name: one for name, one in self._topics.items() if one.asked_ms > oldest_ms}
