"""What the handlers of the API and of the console share: the broker, the other brokers, and the Kafka server."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.responses import Response

from tidemill.broker.broker import BrokerNode
from tidemill.client.kafka.client import KafkaClient
from tidemill.security.client_rights import ClientRights
from tidemill.servers.http.api.acting_clients import ActingClients
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.broker_parts import BrokerParts
from tidemill.servers.http.api.event_stream import EventStreams
from tidemill.servers.http.api.schema_registry import SchemaRegistry
from tidemill.servers.http.server import SqlQueries
from tidemill.wire.http.document import Document

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class ApiContext:
    """The dependencies of all handlers of one HTTP server."""

    broker: BrokerNode
    facts: Callable[[], Mapping[str, str]]
    sql: SqlQueries
    parts: BrokerParts
    acting: ActingClients
    streams: EventStreams
    schemas: SchemaRegistry
    is_readonly: bool = False
    """Whether changes are refused, whatever rights the client has."""

    async def as_client(self, rights: ClientRights, work: Callable[[KafkaClient], R]) -> R:
        """Run `work` in a thread, with a Kafka client whose requests have the rights of a client of this server."""
        return await self.acting.run(rights, work)


ApiHandler = Callable[[ApiContext, ApiCall[Any, Any]], Awaitable[Document | dict[str, Any] | Response | None]]
"""Answers one request. A document becomes JSON with status 200, None becomes status 204."""
