"""The errors of ClickHouse, in two kinds: certain and uncertain.

After `EngineRefused` and `EngineUnreachable` nothing was changed. After `EngineUncertain` the outcome is unknown: the
response was lost, or the server itself did not know. An uncertain insert is repeated with the same token until it is
certain; see `committer`.
"""

from tidemill.model.errors import KafkaStorageError
from tidemill.streams.interface import StoreAway

# Error codes of an insert that stored nothing for certain.
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
    """A ClickHouse call failed. `reason` is ClickHouse's error code, where it returned one."""

    reason: int | None = None


class EngineUnreachable(EngineError, StoreAway):
    """The server is unreachable; it did not get the statement."""


class EngineUncertain(EngineError, StoreAway):
    """The server may or may not have run the statement."""


class EngineRefused(EngineError):
    """The server rejected the statement."""


class EngineClosed(EngineError):
    """The broker is stopping."""
