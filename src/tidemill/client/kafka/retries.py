"""How long to go on after an error that may pass: a decision, made from numbers.

Three kinds of patience. A broker that nobody has ever reached is probably a wrong address: the connect timeout is all
it gets. A topic that nobody knows is probably a wrong name, but a new one takes a moment to be known everywhere. All
else (a broker restarts, a leader moves, a coordinator loads) may last as long as the API timeout allows.
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
    """How long to wait before trying again, or None when the error is final."""
    # The same bytes will be as corrupt the next time.
    if not error.retriable or isinstance(error, CorruptMessage):
        return None
    patience_ms = options.api_timeout_ms if contacted else options.connect_timeout_ms
    if isinstance(error, UnknownTopicOrPartition):
        patience_ms = min(patience_ms, UNKNOWN_TOPIC_MS)
    if waited_ms >= patience_ms:
        return None
    grown = options.retry_backoff_ms * int(BACKOFF_GROWTH ** min(attempt, ATTEMPTS_GROWING))
    return min(grown, options.retry_backoff_max_ms, patience_ms - waited_ms)


def told(what: str, error: E) -> E:
    """The same error with a line that begins with what was tried."""
    line = f"{what}: {error}"
    return error if not what else type(error)(line)
