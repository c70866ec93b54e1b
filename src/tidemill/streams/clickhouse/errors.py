"""What can go wrong with ClickHouse, told in two kinds: certain and uncertain.

After `EngineRefused` and `EngineUnreachable` nothing was changed. After `EngineUncertain` nobody knows: the answer was
lost, or the server itself was not sure. An insert that is uncertain is repeated with the same token until it is
certain; see `committer`.
"""

from tidemill.model.errors import KafkaStorageError
from tidemill.streams.interface import StoreAway

# Answers to an insert that leave no doubt: nothing of it was stored.
CERTAIN_CODES = frozenset(
    {
        16,  # NO_SUCH_COLUMN_IN_TABLE
        60,  # UNKNOWN_TABLE
        62,  # SYNTAX_ERROR
        81,  # UNKNOWN_DATABASE
        117,  # INCORRECT_DATA
        164,  # READONLY
        192,  # UNKNOWN_USER
        193,  # WRONG_PASSWORD
        202,  # TOO_MANY_SIMULTANEOUS_QUERIES
        241,  # MEMORY_LIMIT_EXCEEDED
        242,  # TABLE_IS_READ_ONLY
        243,  # NOT_ENOUGH_SPACE
        252,  # TOO_MANY_PARTS
        285,  # TOO_FEW_LIVE_REPLICAS
        395,  # FUNCTION_THROW_IF_VALUE_IS_NON_ZERO
        497,  # ACCESS_DENIED
        516,  # AUTHENTICATION_FAILED
    }
)


class EngineError(KafkaStorageError):
    """ClickHouse did not do what it was asked for; `reason` is its own number for why, where it gave one."""

    reason: int | None = None


class EngineUnreachable(EngineError, StoreAway):
    """The server cannot be reached; it was not asked."""


class EngineUncertain(EngineError, StoreAway):
    """The server may or may not have done what it was asked for."""


class EngineRefused(EngineError):
    """The server said no."""


class EngineClosed(EngineError):
    """The broker is stopping."""
