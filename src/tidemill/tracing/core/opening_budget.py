"""How many bytes of batches may be opened for their headers: a sample of the traffic of each topic.

Opening a batch costs time of the broker. Traces must not slow a topic with much traffic down, so only its first bytes
of each second are opened.
"""

TOPIC_BYTES_PER_S = 4 * 1024 * 1024
BYTES_PER_S = 16 * 1024 * 1024
BATCH_COST_MIN = 4096
"""What a small batch counts, so that the number of batches is limited too: a thousand of a topic per second."""


class OpeningBudget:
    """Counts the bytes that were opened in the current second, by topic."""

    def __init__(self, topic_bytes: int = TOPIC_BYTES_PER_S, all_bytes: int = BYTES_PER_S) -> None:
        self._topic_bytes = topic_bytes
        self._all_bytes = all_bytes
        self._second = -1
        self._used: dict[str, int] = {}
        self._all_used = 0

    def may_open(self, topic: str, now_s: int) -> bool:
        """Whether there is anything left for this topic in this second."""
        if now_s != self._second:
            self._second = now_s
            self._used.clear()
            self._all_used = 0
        return self._all_used < self._all_bytes and self._used.get(topic, 0) < self._topic_bytes

    def spend(self, topic: str, opened_bytes: int) -> None:
        """Count what was opened."""
        cost = max(opened_bytes, BATCH_COST_MIN)
        self._used[topic] = self._used.get(topic, 0) + cost
        self._all_used += cost
