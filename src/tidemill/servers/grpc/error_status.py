"""Typed errors as gRPC answers: a status for every client, and the class name for ours."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import grpc
import structlog

from tidemill.model import errors as streams
from tidemill.model import timeline_errors as timelines
from tidemill.model.errors import InvalidRequest, TidemillError
from tidemill.servers.grpc.call import ERROR_KEY, RETRY_AFTER_KEY

UNEXPECTED = "unexpected error in the broker; see its log"
STATUSES: dict[type[TidemillError], grpc.StatusCode] = {
    timelines.UnknownTimeline: grpc.StatusCode.NOT_FOUND,
    timelines.UnknownMessage: grpc.StatusCode.NOT_FOUND,
    timelines.TimelineExists: grpc.StatusCode.ALREADY_EXISTS,
    timelines.TimelineNotReady: grpc.StatusCode.FAILED_PRECONDITION,
    timelines.TimelineDeleting: grpc.StatusCode.FAILED_PRECONDITION,
    timelines.StaleLease: grpc.StatusCode.ABORTED,
    timelines.LeaseIsLive: grpc.StatusCode.FAILED_PRECONDITION,
    timelines.NotOwner: grpc.StatusCode.PERMISSION_DENIED,
    timelines.UnknownSession: grpc.StatusCode.FAILED_PRECONDITION,
    timelines.ConsumerReplaced: grpc.StatusCode.ABORTED,
    timelines.ProducerThrottled: grpc.StatusCode.RESOURCE_EXHAUSTED,
    timelines.StoreUnavailable: grpc.StatusCode.UNAVAILABLE,
    timelines.StoreCorrupt: grpc.StatusCode.DATA_LOSS,
    streams.UnknownTopicOrPartition: grpc.StatusCode.NOT_FOUND,
    streams.TopicAlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
    streams.OffsetOutOfRange: grpc.StatusCode.OUT_OF_RANGE,
    streams.UnreadableBatch: grpc.StatusCode.DATA_LOSS,
    streams.ThrottlingQuotaExceeded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    streams.UnknownMemberId: grpc.StatusCode.ABORTED,
    streams.FencedMemberEpoch: grpc.StatusCode.ABORTED,
    streams.StaleMemberEpoch: grpc.StatusCode.ABORTED,
    streams.IllegalGeneration: grpc.StatusCode.ABORTED,
    streams.SaslAuthenticationFailed: grpc.StatusCode.UNAUTHENTICATED,
    streams.TopicAuthorizationFailed: grpc.StatusCode.PERMISSION_DENIED,
    streams.GroupAuthorizationFailed: grpc.StatusCode.PERMISSION_DENIED,
    streams.ClusterAuthorizationFailed: grpc.StatusCode.PERMISSION_DENIED,
}

T = TypeVar("T")
Number = TypeVar("Number", bound=int)
log = structlog.get_logger(__name__)


def status_of(error: TidemillError) -> grpc.StatusCode:
    """Return the status of an error: UNAVAILABLE for a temporary one, INVALID_ARGUMENT for a wrong request."""
    otherwise = grpc.StatusCode.UNAVAILABLE if error.retriable else grpc.StatusCode.INVALID_ARGUMENT
    return STATUSES.get(known_class(error), otherwise)


def known_class(error: TidemillError) -> type[TidemillError]:
    """The class of an error that clients know: a class of the broker itself becomes the one that it is made of."""
    known = (streams.__name__, timelines.__name__)
    return next((each for each in type(error).__mro__ if each.__module__ in known), TidemillError)


def meaning(field: str, number: Number, meanings: Mapping[Number, T]) -> T:
    """Return the meaning of an enum number; clients can send numbers that the schema does not have."""
    if number not in meanings:
        raise InvalidRequest(f"{field} is {number}; it must be one of {', '.join(map(str, meanings))}")
    return meanings[number]


async def refuse(context: Any, error: TidemillError) -> None:
    """End the call with the error."""
    metadata = [(ERROR_KEY, known_class(error).__name__)]
    if error.retry_after_ms:
        metadata.append((RETRY_AFTER_KEY, str(error.retry_after_ms)))
    await context.abort(status_of(error), str(error), tuple(metadata))


async def answered(context: Any, call: Callable[[], Awaitable[T]]) -> T:
    """Return the answer of a call. A known error ends it with its status, any other with INTERNAL and a log event."""
    try:
        return await call()
    except TidemillError as error:
        await refuse(context, error)
        raise
    except Exception:
        log.exception("grpc_call_failed")
        await context.abort(grpc.StatusCode.INTERNAL, UNEXPECTED)
        raise
