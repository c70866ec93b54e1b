"""A token bucket: tokens come at a steady rate up to a burst, and one request may overdraw it (as in KIP-599).

A client that waits until nothing is overdrawn stays at its rate, whatever the size of its requests: over any time it
uses at most the rate, one burst, and one request.
"""


class TokenBucket:
    """The tokens of one client; it begins full. Rate and burst are arguments, because quotas change."""

    __slots__ = ("_at_s", "_tokens", "last_used_s")

    def __init__(self, burst: float, now_s: float) -> None:
        self._tokens = burst
        self._at_s = now_s
        self.last_used_s = now_s

    def tokens(self, rate: float, burst: float, now_s: float) -> float:
        """The tokens at this time; negative after a request that took more than there were."""
        self._tokens = min(burst, self._tokens + max(0.0, now_s - self._at_s) * rate)
        self._at_s = max(self._at_s, now_s)
        return self._tokens

    def take(self, count: float, rate: float, burst: float, now_s: float) -> None:
        """Take tokens, also more than there are; a negative count returns them."""
        self._tokens = min(burst, self.tokens(rate, burst, now_s) - count)
        self.last_used_s = now_s

    def wait_s(self, rate: float, burst: float, now_s: float, *, more: float = 0.0) -> float:
        """The seconds until nothing is overdrawn, if `more` is taken first."""
        return max(0.0, (more - self.tokens(rate, burst, now_s)) / rate)

    def limit_debt(self, tokens: float) -> None:
        """Forget what is overdrawn above this number of tokens."""
        self._tokens = max(self._tokens, -tokens)
