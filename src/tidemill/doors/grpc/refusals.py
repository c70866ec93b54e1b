"""Typed errors on their way out: a gRPC status for every client, and the name of the class for ours."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc
import structlog

from tidemill.model import timeline_errors as errors
from tidemill.model.timeline_errors import TimelineError

ERROR_KEY = "tidemill-error"
STATUSES: dict[type[TimelineError], grpc.StatusCode] = {
    errors.UnknownTimeline: grpc.StatusCode.NOT_FOUND,
    errors.UnknownMessage: grpc.StatusCode.NOT_FOUND,
    errors.TimelineExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.TimelineNotReady: grpc.StatusCode.FAILED_PRECONDITION,
    errors.TimelineDeleting: grpc.StatusCode.FAILED_PRECONDITION,
    errors.StaleLease: grpc.StatusCode.ABORTED,
    errors.LeaseIsLive: grpc.StatusCode.FAILED_PRECONDITION,
    errors.NotOwner: grpc.StatusCode.PERMISSION_DENIED,
    errors.UnknownSession: grpc.StatusCode.FAILED_PRECONDITION,
    errors.ConsumerReplaced: grpc.StatusCode.ABORTED,
    errors.StoreUnavailable: grpc.StatusCode.UNAVAILABLE,
    errors.StoreCorrupt: grpc.StatusCode.DATA_LOSS,
}

T = TypeVar("T")
log = structlog.get_logger(__name__)


def status_of(error: TimelineError) -> grpc.StatusCode:
    """The status of an error; what is wrong with the request itself is an invalid argument."""
    return STATUSES.get(type(error), grpc.StatusCode.INVALID_ARGUMENT)


async def refuse(context: Any, error: TimelineError) -> None:
    """End the call with the error."""
    await context.abort(status_of(error), str(error), ((ERROR_KEY, type(error).__name__),))


async def answered(context: Any, call: Callable[[], Awaitable[T]]) -> T:
    """The answer of a call; a refusal ends it with its status, a surprise with INTERNAL and a line in the log."""
    try:
        return await call()
    except TimelineError as error:
        await refuse(context, error)
        raise
    except Exception as error:
        log.exception("grpc_call_failed")
        await context.abort(grpc.StatusCode.INTERNAL, f"the broker met an error it did not expect: {error}")
        raise
