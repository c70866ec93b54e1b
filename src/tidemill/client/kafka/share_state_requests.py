"""Requests between brokers about the stored state of share partitions (the persister of KIP-932)."""

from typing import Any
from uuid import UUID

from tidemill.client.kafka.apis import ClientApi
from tidemill.client.kafka.protocol import Answer, Request, plain
from tidemill.model.errors import TidemillError, of_code

INITIALIZE = ClientApi(83, 0, 0)
READ = ClientApi(84, 0, 0)
WRITE = ClientApi(85, 1, 1)
DELETE = ClientApi(86, 0, 0)
SUMMARY = ClientApi(87, 1, 1)


def share_state_request(api: ClientApi, group_id: str, topic_id: UUID, partition: int, **fields: Any) -> Request:
    """A request about one share partition."""
    parts = [{"partition": partition, **fields}]
    return plain(api, {"group_id": group_id, "topics": [{"topic_id": topic_id, "partitions": parts}]})


def share_state_result(answer: Answer) -> Any:
    """The only result of the response. Raises the error of the coordinator."""
    for topic in answer.message().results:
        for part in topic.partitions:
            if part.error_code:
                error: TidemillError = of_code(part.error_code)
                raise error
            return part
    raise of_code(-1)
