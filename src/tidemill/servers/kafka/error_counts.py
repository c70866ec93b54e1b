"""Counts the errors in responses for metrics, by the name of their class.

A refusal that a protocol expects is not an error: the client asks again in another way.
"""

from tidemill.broker.metrics import BrokerMetrics
from tidemill.model.errors import (
    BY_CODE,
    GroupIdNotFound,
    MemberIdRequired,
    RebalanceInProgress,
    TidemillError,
    UnknownServerError,
    UnsupportedVersion,
)

SERVER = "kafka"
EXPECTED_REFUSALS: dict[str, frozenset[int]] = {
    "ApiVersions": frozenset({UnsupportedVersion.code}),  # a newer client tries its own version first
    "JoinGroup": frozenset({MemberIdRequired.code}),  # the first request of a member gets its id this way
    "Heartbeat": frozenset({RebalanceInProgress.code}),  # members learn this way that they have to join again
    # Clients describe a group of unknown type with one API and then with the other.
    "DescribeGroups": frozenset({GroupIdNotFound.code}),
    "ConsumerGroupDescribe": frozenset({GroupIdNotFound.code}),
}


def count_error(metrics: BrokerMetrics, api: str, code: int, count: int = 1) -> None:
    """Count an error code in a response of an API, `count` times."""
    if code not in EXPECTED_REFUSALS.get(api, ()):
        metrics.api(SERVER, api).failed(error_class(code).__name__, count)


def error_class(code: int) -> type[TidemillError]:
    """The error of a code in a response."""
    return BY_CODE.get(code, UnknownServerError)
