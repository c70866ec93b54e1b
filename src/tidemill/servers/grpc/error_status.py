"""Typed errors on their way out: a gRPC status for every client, and the name of the class for ours."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import grpc
import structlog

from tidemill.model import errors as streams
from tidemill.model import timeline_errors as timelines
from tidemill.model.errors import InvalidRequest, TidemillError

ERROR_KEY = "tidemill-error"
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
    timelines.StoreUnavailable: grpc.StatusCode.UNAVAILABLE,
    timelines.StoreCorrupt: grpc.StatusCode.DATA_LOSS,
    streams.UnknownTopicOrPartition: grpc.StatusCode.NOT_FOUND,
    streams.TopicAlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
    streams.OffsetOutOfRange: grpc.StatusCode.OUT_OF_RANGE,
    streams.UnreadableBatch: grpc.StatusCode.DATA_LOSS,
    streams.UnknownMemberId: grpc.StatusCode.ABORTED,
    streams.FencedMemberEpoch: grpc.StatusCode.ABORTED,
    streams.StaleMemberEpoch: grpc.StatusCode.ABORTED,
    streams.IllegalGeneration: grpc.StatusCode.ABORTED,
}

T = TypeVar("T")
Number = TypeVar("Number", bound=int)
log = structlog.get_logger(__name__)


def status_of(error: TidemillError) -> grpc.StatusCode:
    """The status of an error: what passes is unavailable, what is wrong with the request itself an invalid argument."""
    otherwise = grpc.StatusCode.UNAVAILABLE if error.retriable else grpc.StatusCode.INVALID_ARGUMENT
    return STATUSES.get(type(error), otherwise)


def meaning(field: str, number: Number, meanings: Mapping[Number, T]) -> T:
    """What the number of an enumeration stands for here; clients can send numbers that the schema does not have."""
    if number not in meanings:
        raise InvalidRequest(f"{field} {number} is none of {', '.join(map(str, meanings))}")
    return meanings[number]


async def refuse(context: Any, error: TidemillError) -> None:
    """End the call with the error."""
    await context.abort(status_of(error), str(error), ((ERROR_KEY, type(error).__name__),))


async def answered(context: Any, call: Callable[[], Awaitable[T]]) -> T:
    """The answer of a call; a refusal ends it with its status, a surprise with INTERNAL and a line in the log."""
    try:
        return await call()
    except TidemillError as error:
        await refuse(context, error)
        raise
    except Exception as error:
        log.exception("grpc_call_failed")
        await context.abort(grpc.StatusCode.INTERNAL, f"the broker met an error it did not expect: {error}")
        raise
