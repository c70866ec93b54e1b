"""Decides how long to retry after a retriable error.

There are three limits. A broker that was never reached is probably a wrong address, so the connect timeout is the
limit. An unknown topic is probably a wrong name, but brokers learn of a new topic with a delay, so it gets a short
limit. Other errors (a broker restarts, a leader moves, a coordinator loads) are retried until the API timeout.
"""

from typing import TypeVar

from tidemill.client.kafka.options import ClientOptions
from tidemill.model.errors import CorruptMessage, TidemillError, UnknownTopicOrPartition

UNKNOWN_TOPIC_MS = 5_000
BACKOFF_GROWTH = 2
ATTEMPTS_GROWING = 16

E = TypeVar("E", bound=TidemillError)


def pause_ms(
    error: TidemillError, *, attempt: int, waited_ms: int, contacted: bool, options: ClientOptions
) -> int | None:
    """The wait before the next attempt. None when the error is final."""
    # A retry would return the same corrupt bytes.
    if not error.retriable or isinstance(error, CorruptMessage):
        return None
    patience_ms = options.api_timeout_ms if contacted else options.connect_timeout_ms
    if isinstance(error, UnknownTopicOrPartition):
        patience_ms = min(patience_ms, UNKNOWN_TOPIC_MS)
    if waited_ms >= patience_ms:
        return None
    grown = options.retry_backoff_ms * int(BACKOFF_GROWTH ** min(attempt, ATTEMPTS_GROWING))
    return min(grown, options.retry_backoff_max_ms, patience_ms - waited_ms)


def prefixed(what: str, error: E) -> E:
    """The same error with the name of the failed operation before its text."""
    line = f"{what}: {error}"
    return error if not what else type(error)(line)
