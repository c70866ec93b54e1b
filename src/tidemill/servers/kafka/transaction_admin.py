"""DescribeTransactions, ListTransactions and DescribeProducers, for admin tools."""

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tidemill.model.errors import InvalidRequest, KafkaError
from tidemill.model.topics import TopicPartition
from tidemill.security.core.resources import Operation, ResourceType
from tidemill.servers.kafka.api import Call, error_code, error_message
from tidemill.transactions.core.state import Transaction, TransactionStatus

if TYPE_CHECKING:
    from kio.schema.describe_producers.v0.request import DescribeProducersRequest
    from kio.schema.describe_producers.v0.response import DescribeProducersResponse
    from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
    from kio.schema.describe_transactions.v0.response import DescribeTransactionsResponse
    from kio.schema.list_transactions.v1.request import ListTransactionsRequest
    from kio.schema.list_transactions.v1.response import ListTransactionsResponse

_STATES = frozenset(state.title for state in TransactionStatus)


async def describe_transactions(
    call: Call["DescribeTransactionsResponse"], request: "DescribeTransactionsRequest"
) -> "DescribeTransactionsResponse":
    """The state of each transactional id."""
    names = dict.fromkeys(request.transactional_ids)
    return call.response(transaction_states=tuple([_described(call, name) async for name in call.in_slices(names)]))


async def list_transactions(
    call: Call["ListTransactionsResponse"], request: "ListTransactionsRequest"
) -> "ListTransactionsResponse":
    """The transactional ids that pass the filters; the response lists unknown states of the filter."""
    wanted = frozenset(request.state_filters)
    found = call.broker.transactions.select(
        states=wanted,
        producer_ids=frozenset(request.producer_id_filters),
        older_ms=getattr(request, "duration_filter", -1),
    )
    states = [
        call.part(
            "TransactionState",
            transactional_id=known.transactional_id,
            producer_id=known.identity.producer_id,
            transaction_state=known.state.title,
        )
        async for known in call.in_slices(found)
        if call.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, known.transactional_id)
    ]
    return call.response(unknown_state_filters=tuple(sorted(wanted - _STATES)), transaction_states=tuple(states))


async def describe_producers(
    call: Call["DescribeProducersResponse"], request: "DescribeProducersRequest"
) -> "DescribeProducersResponse":
    """The producers of each partition, with the first offset of an open transaction."""
    topics = []
    seen: set[tuple[str, int]] = set()  # repeated partitions would multiply the size of the response
    async for topic in call.in_slices(request.topics):
        parts = []
        async for index in call.in_slices(topic.partition_indexes):
            if (topic.name, index) not in seen:
                seen.add((topic.name, index))
                parts.append(await _producers(call, topic.name, index))
        topics.append(call.part("TopicResponse", name=topic.name, partitions=tuple(parts)))
    return call.response(topics=tuple(topics))


def _described(call: Call, transactional_id: str) -> Any:
    try:
        if not transactional_id:
            raise InvalidRequest("the transactional id is empty")
        call.check(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        known: Transaction = call.broker.transactions.describe(transactional_id)
    except KafkaError as error:
        return call.part("TransactionState", error_code=error_code(error), transactional_id=transactional_id)
    topics = tuple(
        call.part("TopicData", topic=topic, partitions=tuple(indexes))
        for topic, indexes in by_topic(sorted(known.partitions)).items()
        if call.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic)
    )
    return call.part(
        "TransactionState",
        transactional_id=transactional_id,
        transaction_state=known.state.title,
        transaction_timeout=known.timeout_ms,
        transaction_start_time=known.started_ms,
        producer_id=known.identity.producer_id,
        producer_epoch=known.identity.epoch,
        topics=topics,
    )


async def _producers(call: Call, topic: str, index: int) -> Any:
    try:
        call.check(Operation.READ, ResourceType.TOPIC, topic)
        producers = call.broker.view.partition(topic, index).producers()
    except KafkaError as error:
        return call.part(
            "PartitionResponse", partition_index=index, error_code=error_code(error), error_message=error_message(error)
        )
    active = [
        call.part(
            "ProducerState",
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.last_timestamp,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=producer.transaction_first_offset,
        )
        async for producer in call.in_slices(producers)
    ]
    return call.part("PartitionResponse", partition_index=index, active_producers=tuple(active))


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partitions of each topic, in their order."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        found[topic].append(index)
    return found
