"""Counts the calls of each gRPC method, their duration and their errors, for metrics.

Methods come from the server's own services, so their number is bounded. A stream is counted when it ends. A client that
ends its own call causes no error.
"""

from asyncio import CancelledError
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from tidemill.broker.metrics import ApiTraffic
from tidemill.model import errors, timeline_errors
from tidemill.model.errors import UnknownServerError

UNEXPECTED = UnknownServerError.__name__


class CallOutcome:
    """How one call has ended."""

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: str | None = None
        """The class of the error that the client got."""


@contextmanager
def counted(traffic: ApiTraffic) -> Iterator[CallOutcome]:
    """Count a call that lasts as long as the block."""
    outcome, began = CallOutcome(), perf_counter()
    traffic.in_flight += 1
    try:
        yield outcome
    except (CancelledError, GeneratorExit):
        raise
    except BaseException:
        outcome.error = outcome.error or UNEXPECTED
        raise
    finally:
        traffic.in_flight -= 1
        traffic.answered(perf_counter() - began)
        if outcome.error is not None:
            traffic.failed(outcome.error)


def known_error(name: object) -> str:
    """The name of a class of errors. The metadata of a relayed call may have names that this broker does not know."""
    known = (errors.by_name(str(name)), timeline_errors.by_name(str(name)))
    return next((each.__name__ for each in known if each.__name__ == name), UNEXPECTED)


def method_name(path: str) -> str:
    """`BrokerService/Produce` for `/tidemill.v1.BrokerService/Produce`."""
    service, _, method = path.rpartition("/")
    return f"{service.rpartition('.')[2]}/{method}"
