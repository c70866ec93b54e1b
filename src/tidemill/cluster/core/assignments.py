"""Choices that were handed out: a client counts at its broker from the answer on, not only when it is connected.

Several clients that ask at the same moment would otherwise all be sent to the same broker. An assignment ends when the
broker publishes one more client of the topic, when the client asks again, or after `ASSIGNED_MS`.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from tidemill.cluster.core.selector import Candidate, Choice, choose

ASSIGNED_MS = 10_000
OF_TOPIC_MAX = 1_000
"""The most of one topic: each question looks at all of them."""
SWEEP_MS = 500
"""How often assignments that were not taken are looked for."""
ASSIGNMENTS_MAX = 10_000
"""The most assignments at a time. Beyond it, clients are sent by the published counts only."""


class _Assignment(NamedTuple):
    """A client that was sent to a broker."""

    node_id: int
    until_ms: int


class Assignments:
    """The assignments of one overseer."""

    def __init__(self) -> None:
        self._open: dict[str, dict[str, _Assignment]] = {}
        """By topic and client, in the order of time."""
        self._published: dict[str, dict[int, int]] = {}
        self._count = 0
        self._swept_ms = 0

    def __len__(self) -> int:
        return self._count

    def assign(
        self, topic: str, client_id: str, candidates: Iterable[Candidate], now_ms: int
    ) -> tuple[tuple[Choice, ...], dict[int, int]]:
        """The brokers for a client, best first, and how many clients of the topic each has or expects.

        The client counts at the first one from now on, if it has an id.
        """
        known = list(candidates)
        self._expire(now_ms)
        self._confirm(topic, known)
        self._drop(topic, client_id)
        expected = Counter(one.node_id for one in self._open.get(topic, {}).values())
        counted = [_with_more(one, topic, expected[one.node_id]) for one in known]
        choices = choose(topic, counted)
        has_room = self._count < ASSIGNMENTS_MAX and len(self._open.get(topic, ())) < OF_TOPIC_MAX
        if choices and client_id and has_room:
            assigned = _Assignment(choices[0].node_id, now_ms + ASSIGNED_MS)
            self._open.setdefault(topic, {})[client_id] = assigned
            self._published.setdefault(topic, {one.node_id: one.consumers.get(topic, 0) for one in known})
            self._count += 1
        return choices, {one.node_id: one.consumers.get(topic, 0) for one in counted}

    def _confirm(self, topic: str, known: list[Candidate]) -> None:
        """Drop the oldest assignments of a broker that has published more clients since."""
        if topic not in self._open:
            return
        published = self._published[topic]
        for one in known:
            now = one.consumers.get(topic, 0)
            more = max(0, now - published.get(one.node_id, 0))
            published[one.node_id] = now
            for client_id in [client for client, to in self._open[topic].items() if to.node_id == one.node_id][:more]:
                self._remove(topic, client_id)
        self._forget_empty(topic)

    def _drop(self, topic: str, client_id: str) -> None:
        if client_id in self._open.get(topic, {}):
            self._remove(topic, client_id)
            self._forget_empty(topic)

    def _expire(self, now_ms: int) -> None:
        if abs(now_ms - self._swept_ms) < SWEEP_MS:
            return
        self._swept_ms = now_ms
        for topic in list(self._open):
            for client_id in [client for client, to in self._open[topic].items() if to.until_ms <= now_ms]:
                self._remove(topic, client_id)
            self._forget_empty(topic)

    def _remove(self, topic: str, client_id: str) -> None:
        del self._open[topic][client_id]
        self._count -= 1

    def _forget_empty(self, topic: str) -> None:
        if not self._open.get(topic, True):
            del self._open[topic]
            del self._published[topic]


def _with_more(one: Candidate, topic: str, more: int) -> Candidate:
    if not more:
        return one
    return one._replace(consumers={**one.consumers, topic: one.consumers.get(topic, 0) + more})
