"""The traffic of topics over the last minutes, of the whole cluster."""

from collections.abc import Sequence

from tidemill.security.client_rights import ClientRights
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext
from tidemill.servers.http.api.overview import HISTORY, MINUTE_SLOTS, history_from, sampled_slot
from tidemill.servers.http.api.topic_access import described_topic
from tidemill.wire.http.overview import History, HistoryQuestion
from tidemill.wire.http.topics import TopicHistoryQuery

RECORDS_IN, BYTES_IN, BYTES_OUT = "topic_records_in", "topic_bytes_in", "topic_bytes_out"
SERIES = (RECORDS_IN, BYTES_IN, BYTES_OUT)


async def topic_history(context: ApiContext, rights: ClientRights, topics: Sequence[str] | None, slots: int) -> History:
    """The rates of some topics, or of all that have traffic. Null: not among the topics that a broker samples."""
    keys = None if topics is None else list(topics)
    asked = HistoryQuestion(series=list(SERIES), last_slot=sampled_slot(context), slots=slots, keys=keys)
    return history_from(await context.parts.gather(HISTORY, rights, asked), asked)


async def show_topic_history(context: ApiContext, call: ApiCall[TopicHistoryQuery, None]) -> History:
    """The rates of one topic."""
    name = described_topic(context.broker, call.rights, call.name("topic")).name
    return await topic_history(context, call.rights, [name], call.query.minutes * MINUTE_SLOTS)
