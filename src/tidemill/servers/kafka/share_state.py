"""The stored state of share partitions, for the other brokers of the cluster (the persister of KIP-932)."""

from collections.abc import Awaitable, Callable
from typing import Any

from tidemill.model.errors import ClusterAuthorizationFailed, InvalidRequest, TidemillError
from tidemill.servers.kafka.api import Call, error_code, error_message
from tidemill.shares.core.durable_state import ShareKey, StateWrite, readable_batches

BATCHES_MAX = 1_000_000
"""The most batches of one share partition in a request."""
Serve = Callable[[ShareKey, Any], Awaitable[dict[str, Any]]]


async def initialize_share_group_state(call: Call[Any], request: Any) -> Any:
    """Create the state of share partitions, or replace it."""

    async def one(key: ShareKey, part: Any) -> dict[str, Any]:
        await call.broker.share_coordinator.initialize(key, part.start_offset)
        return {}

    return await _each(call, request, "InitializeStateResult", one)


async def read_share_group_state(call: Call[Any], request: Any) -> Any:
    """Read the state for the leader of a partition."""

    async def one(key: ShareKey, part: Any) -> dict[str, Any]:
        found = await call.broker.share_coordinator.read(key, part.leader_epoch)
        batches = [
            call.part(
                "StateBatch",
                first_offset=each.first,
                last_offset=each.last,
                delivery_state=each.state,
                delivery_count=each.deliveries,
            )
            for each in found.batches
        ]
        return {
            "state_epoch": found.state_epoch,
            "start_offset": found.start_offset,
            "state_batches": tuple(batches),
        }

    return await _each(call, request, "ReadStateResult", one)


async def write_share_group_state(call: Call[Any], request: Any) -> Any:
    """Store changes of the leader of a partition."""

    async def one(key: ShareKey, part: Any) -> dict[str, Any]:
        rows = [(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in part.state_batches]
        try:
            batches = readable_batches(rows[: BATCHES_MAX + 1])
        except ValueError as error:
            raise InvalidRequest(str(error)) from None
        change = StateWrite(part.state_epoch, part.leader_epoch, part.start_offset, batches)
        await call.broker.share_coordinator.write(key, change)
        return {}

    return await _each(call, request, "WriteStateResult", one)


async def delete_share_group_state(call: Call[Any], request: Any) -> Any:
    """Delete the state of share partitions."""

    async def one(key: ShareKey, _part: Any) -> dict[str, Any]:
        await call.broker.share_coordinator.delete(key)
        return {}

    return await _each(call, request, "DeleteStateResult", one)


async def read_share_group_state_summary(call: Call[Any], request: Any) -> Any:
    """Read the state without its batches."""

    async def one(key: ShareKey, _part: Any) -> dict[str, Any]:
        found = await call.broker.share_coordinator.summary(key)
        return {
            "state_epoch": found.state_epoch,
            "leader_epoch": found.leader_epoch,
            "start_offset": found.start_offset,
            "delivery_complete_count": found.finished,
        }

    return await _each(call, request, "ReadStateSummaryResult", one)


async def _each(call: Call[Any], request: Any, name: str, serve: Serve) -> Any:
    """Serve every share partition of a request; each has its own error."""
    results = []
    for topic in request.topics:
        parts = [
            await _one(call, ShareKey(request.group_id, topic.topic_id, part.partition), part, serve)
            async for part in call.in_slices(topic.partitions)
        ]
        results.append(call.part(name, topic_id=topic.topic_id, partitions=tuple(parts)))
    return call.response(results=tuple(results))


async def _one(call: Call[Any], key: ShareKey, part: Any, serve: Serve) -> Any:
    fields: dict[str, Any] = {}
    failure: TidemillError | None = None
    try:
        if call.peer is None:
            raise ClusterAuthorizationFailed("the state of share groups is only for brokers of this cluster")
        if key.topic_id is None:
            raise InvalidRequest("a topic has no id")
        fields = await serve(key, part)
    except TidemillError as error:
        failure = error
    return call.part(
        "PartitionResult",
        partition=key.partition,
        error_code=error_code(failure),
        error_message=error_message(failure),
        **fields,
    )
