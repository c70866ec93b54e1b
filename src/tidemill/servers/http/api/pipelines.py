"""Pipelines in the JSON API. The leader of their reports answers every broker, so all of them show the same.

A pipeline is shown to clients that may DESCRIBE all topics that it names, or the cluster. For others it does not exist.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from tidemill.broker.broker import BrokerNode
from tidemill.client.kafka.client import KafkaClient
from tidemill.cluster.core.image import NO_BROKER
from tidemill.model.topics import PIPELINES, TopicPartition
from tidemill.pipeline_reports.coordinator import PARTITION
from tidemill.pipeline_reports.core.pipeline_state import ALIVE, FAILED, STALE
from tidemill.records.build import NewRecord, build_batch
from tidemill.security.client_rights import ClientRights
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext, ApiHandler
from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.servers.http.api.broker_parts import PartKind
from tidemill.servers.http.api.pipeline_parts import ONE, PAGE, SLOTS_A_MINUTE
from tidemill.wire.http.pipelines import (
    PipelineAsked,
    PipelineDescription,
    PipelineDescriptionQuery,
    PipelinePage,
    PipelineQuery,
    PipelineRow,
    PipelinesAsked,
)

NAME_SHOWN_CHARS = 100
TROUBLED_MAX = 10

Q = TypeVar("Q", bound=msgspec.Struct)
P = TypeVar("P", bound=msgspec.Struct)


async def list_pipelines(context: ApiContext, call: ApiCall[PipelineQuery, None]) -> PipelinePage:
    """A page of the pipelines that the client may see."""
    query = call.query
    asked = PipelinesAsked(
        search=query.search,
        state=query.state,
        sort=query.sort,
        descending=query.descending,
        page=query.page,
        rows=query.rows,
    )
    part = await _at_leader(context, PAGE, call.rights, asked)
    if part is None:
        return PipelinePage(pipelines=[], total=0, states={})
    if part.page is None:
        raise _loading()
    return part.page


async def show_pipeline(context: ApiContext, call: ApiCall[PipelineDescriptionQuery, None]) -> PipelineDescription:
    """One pipeline."""
    return await describe_pipeline(context, call.rights, call.name(), call.query.minutes)


async def describe_pipeline(
    context: ApiContext, rights: ClientRights, name: str, minutes: int = 1
) -> PipelineDescription:
    """One pipeline with its samples; ApiProblem if there is none that the client may see."""
    asked = PipelineAsked(pipeline=name, slots=minutes * SLOTS_A_MINUTE)
    part = await _at_leader(context, ONE, rights, asked)
    if part is not None and part.is_loading:
        raise _loading()
    if part is None or part.pipeline is None:
        raise ApiProblem(404, f"there is no pipeline {name[:NAME_SHOWN_CHARS]}, or you may not see it; see /pipelines")
    return part.pipeline


async def troubled_pipelines(context: ApiContext, rights: ClientRights) -> list[PipelineRow]:
    """Some pipelines that have failed or are silent; none while the broker that has the reports does not answer."""
    found: list[PipelineRow] = []
    for state in (FAILED, STALE):
        asked = PipelinesAsked(search="", state=state, sort="reported", descending=True, page=1, rows=TROUBLED_MAX)
        try:
            part = await _at_leader(context, PAGE, rights, asked)
        except ApiProblem:  # the overview says which brokers do not answer
            return []
        if part is not None and part.page is not None:
            found += part.page.pipelines
    return found


async def forget_pipeline(context: ApiContext, call: ApiCall[None, None]) -> None:
    """Forget a pipeline that has ended."""
    name = call.name()
    found = await describe_pipeline(context, call.rights, name)
    if found.state in ALIVE:
        raise ApiProblem(409, f"pipeline {name[:NAME_SHOWN_CHARS]} is {found.state}; stop it first, then forget it")
    batch = build_batch([NewRecord(name.encode(), None, timestamp=context.broker.clock_ms())])

    def forget(client: KafkaClient) -> None:
        client.produce(TopicPartition(PIPELINES, PARTITION), batch)

    await context.as_client(call.rights, forget)


async def _at_leader(context: ApiContext, kind: PartKind[Q, P], rights: ClientRights, asked: Q) -> P | None:
    """The answer of the broker that has the reports; None before the first report."""
    broker: BrokerNode = context.broker
    leader = broker.internal.leader_of(PIPELINES, PARTITION)
    if leader != NO_BROKER:
        return await context.parts.at(leader, kind, rights, asked)
    if broker.view.topic(PIPELINES) is None:
        return None
    raise ApiProblem(503, f"{PIPELINES}, which has the reports, has no leader now; try again, or see /cluster")


def _loading() -> ApiProblem:
    return ApiProblem(503, "the broker that leads the reports still reads them; try again in a moment")


HANDLERS: dict[str, ApiHandler] = {
    "GET /api/v1/pipelines": list_pipelines,
    "GET /api/v1/pipelines/{name}": show_pipeline,
    "DELETE /api/v1/pipelines/{name}": forget_pipeline,
}
PARTS: Sequence[PartKind[Any, Any]] = (PAGE, ONE)
