"""The answer of a handler: what it returned, or its error in the response of the API. Errors are counted."""

from collections import Counter
from collections.abc import Awaitable
from typing import Any

import structlog

from tidemill.model.errors import ProtocolViolation, TidemillError
from tidemill.servers.kafka.api import Api, Call
from tidemill.servers.kafka.error_counts import count_error
from tidemill.wire.kafka.error_codes import refusals

log = structlog.get_logger("tidemill.kafka")


async def answer_of(api: Api, call: Call, answering: Awaitable[Any]) -> Any:
    """Wait for the handler. A response without a field for its error is a ProtocolViolation."""
    try:
        answer = await answering
    except ProtocolViolation:
        raise
    except Exception as error:
        if not isinstance(error, TidemillError):
            log.exception("request_failed", api=api.name, version=call.version, client_id=call.client_id)
        answer = call.refusal(error)
        if answer is None:
            raise ProtocolViolation(
                f"{api.name} version {call.version} failed and its response has no error field: {error}"
            ) from error
    if answer is not None and not isinstance(answer, list):
        codes = await call.in_worker(_error_counts, answer) if call.is_answer_large else _error_counts(answer)
        for code, count in codes.items():
            count_error(call.broker.metrics, api.name, code, count)
    return answer


def _error_counts(answer: Any) -> dict[int, int]:
    return Counter(refusals(answer))
