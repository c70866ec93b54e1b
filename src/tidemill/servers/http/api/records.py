"""Records in the JSON API: pages, single records, payloads as files, new records as they come, and writing."""

import asyncio
import secrets
from base64 import b64decode
from binascii import Error as Base64Error
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, ClassVar, TypeVar

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tidemill.client.kafka.client import KafkaClient
from tidemill.cluster.core.image import Topic
from tidemill.model.errors import NotLeaderOrFollower, TidemillError
from tidemill.model.topics import TopicPartition
from tidemill.records.build import NewRecord, build_batch
from tidemill.records.hashing import MURMUR2_RANDOM, PARTITIONERS
from tidemill.security.client_rights import ClientRights
from tidemill.security.core.principal import Principal
from tidemill.servers.http.api.api_call import ApiCall
from tidemill.servers.http.api.api_context import ApiContext, ApiHandler
from tidemill.servers.http.api.api_problem import ApiProblem
from tidemill.servers.http.api.broker_parts import PartKind
from tidemill.servers.http.api.event_stream import Documents
from tidemill.servers.http.api.record_reader import (
    DETAIL_CHARS,
    RecordAsked,
    RecordExport,
    RecordTail,
    TopicReading,
    check_filter,
    check_tail,
    read_one,
    read_page,
)
from tidemill.servers.http.api.topic_access import check_partition_of, described_topic, readable_topic
from tidemill.servers.http.core.payload_views import PayloadViews
from tidemill.servers.http.core.record_condition import InvalidCondition
from tidemill.servers.http.core.record_positions import MERGED_PARTITIONS_MAX, InvalidPosition
from tidemill.servers.http.core.record_rows import row_of
from tidemill.servers.http.core.record_scan import DamagedBatch, KeptRecord
from tidemill.wire.http.document import Problem
from tidemill.wire.http.records import (
    NewRecordInput,
    PayloadInput,
    PayloadQuery,
    RecordExportQuery,
    RecordFormatQuery,
    RecordLine,
    RecordPage,
    RecordQuery,
    RecordRow,
    RecordTailQuery,
    WrittenRecord,
)

TAIL_S = 0.3
"""The pause between two looks of a live view."""
TAIL_BUSY_S = 2.0
"""The pause after a look for which there was no capacity, or no leader."""
EXPORTS_MAX = 4
"""Downloads of all clients at the same time."""
CLIENT_EXPORTS_MAX = 2
"""Downloads of one client at the same time, so that a slow one leaves room for others."""
LOGIN_ENDED = "the login has ended during the download; log in, and download from the last offset on"
JSON_LINES = "application/x-ndjson"
BINARY = "application/octet-stream"
OFFSET_CHARS_MAX = 19

R = TypeVar("R")


async def list_records(context: ApiContext, call: ApiCall[RecordQuery, None]) -> RecordPage:
    """A page of the records of a topic."""
    reading, query = _reading(context, call, call.query.partition), call.query
    schemas = context.schemas.for_request()
    return await _asked(context, call.rights, lambda client: read_page(client, reading, query, schemas))


async def describe_record(context: ApiContext, call: ApiCall[RecordFormatQuery, None]) -> RecordRow:
    """One record, with its key and value whole as long as they are not huge."""
    return await shown_record(context, call, DETAIL_CHARS)


async def shown_record(context: ApiContext, call: ApiCall[RecordFormatQuery, None], chars: int) -> RecordRow:
    """One record, with at most so many characters of its key and value in their views."""
    topic, found = await _record(context, call)
    schemas, query = context.schemas.for_request(), call.query
    views = PayloadViews(schemas, chars=chars, is_pretty=True)
    return await asyncio.to_thread(row_of, topic, found, views, query.key_format, query.value_format)


async def download_payload(context: ApiContext, call: ApiCall[PayloadQuery, None]) -> Response:
    """A key, a value or a header as a file."""
    topic, found = await _record(context, call)
    query = call.query
    payload = found.value if query.part == "value" else found.key
    if query.part == "header":
        if query.header >= len(found.headers):
            raise ApiProblem(404, f"the record has {len(found.headers)} headers; the first is 0")
        payload = found.headers[query.header][1]
    if payload is None:
        raise ApiProblem(404, f"the {query.part} of this record is null")
    name = f"{_file_name(topic)}-{found.partition}-{found.offset}-{query.part}.bin"
    return Response(payload, media_type=BINARY, headers=_as_file(name))


async def follow_records(context: ApiContext, call: ApiCall[RecordTailQuery, None]) -> Response:
    """New records as server-sent events."""
    reading = _reading(context, call, call.query.partition)
    _checked(lambda: check_tail(reading, call.query))
    tail = RecordTail(reading, call.query, context.schemas.for_request)
    return context.streams.open(call, _tailed(context, call.rights, reading.topic, tail))


async def _tailed(context: ApiContext, rights: ClientRights, topic: str, tail: RecordTail) -> Documents:
    has_begun = False
    while True:
        # Kafka's error for a topic that does not exist is retriable, so the stream would wait for a deleted topic.
        readable_topic(context.broker, rights, topic)
        pause_s = TAIL_S
        try:
            found = await context.as_client(rights, tail.read)
        except (ApiProblem, TidemillError) as error:
            is_busy = isinstance(error, ApiProblem) and error.status == 429
            if not is_busy and not (isinstance(error, TidemillError) and error.retriable):
                raise
            pause_s = TAIL_BUSY_S
        else:
            # The first document says where the stream starts, also when nothing is new.
            if not has_begun or found.records or found.skipped or found.unreadable:
                has_begun = True
                yield found
        await asyncio.sleep(pause_s)


class ExportResponse(StreamingResponse):
    """A download. It is counted from its creation to its end; ApiProblem while there are too many."""

    running: ClassVar[Counter[tuple[Principal, str]]] = Counter()

    def __init__(self, rights: ClientRights, content: AsyncIterator[bytes], name: str) -> None:
        self._key = (rights.principal, rights.host)
        mine, all_clients = self.running[self._key], self.running.total()
        if mine >= CLIENT_EXPORTS_MAX or all_clients >= EXPORTS_MAX:
            raise ApiProblem(
                429, f"{max(mine, all_clients)} downloads are running; wait for one of them, then try again"
            )
        super().__init__(content, media_type=JSON_LINES, headers=_as_file(name))
        self.running[self._key] += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it. `BoundedProtocol` ends it when the client stops reading."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.running[self._key] -= 1
            if not self.running[self._key]:
                del self.running[self._key]


async def export_records(context: ApiContext, call: ApiCall[RecordExportQuery, None]) -> Response:
    """Records as JSON lines."""
    reading = _reading(context, call, call.query.partition)
    _checked(lambda: check_filter(call.query))
    export = RecordExport(reading, call.query, context.schemas.for_request())
    first = await _asked(context, call.rights, export.read)
    name = f"{_file_name(reading.topic)}.jsonl"
    return ExportResponse(call.rights, _exported(context, call, export, first), name)


async def _exported(
    context: ApiContext, call: ApiCall[Any, Any], export: RecordExport, first: list[RecordLine] | None
) -> AsyncIterator[bytes]:
    lines = first
    while lines is not None:
        if context.streams.has_ended(call):
            yield msgspec.json.encode(Problem(error=LOGIN_ENDED)) + b"\n"
            return
        if lines:
            yield await asyncio.to_thread(msgspec.json.Encoder().encode_lines, lines)
        try:
            lines = await context.as_client(call.rights, export.read)
        except ApiProblem as error:
            if error.status != 429:
                raise
            lines = []  # other requests of the client are running
            await asyncio.sleep(TAIL_BUSY_S)
        except TidemillError as error:  # the head of the answer is sent, so the last line tells it
            yield msgspec.json.encode(Problem(error=str(error))) + b"\n"
            return


async def produce_record(context: ApiContext, call: ApiCall[None, NewRecordInput]) -> WrittenRecord:
    """Write one record, acknowledged by all in-sync replicas."""
    topic, body = described_topic(context.broker, call.rights, call.name("topic")), call.body
    key, value = _payload(body.key, "the key"), _payload(body.value, "the value")
    headers = tuple((each.name, _payload(each.value, "a header")) for each in body.headers)
    record = NewRecord(key, value, headers, context.broker.clock_ms())
    place = TopicPartition(topic.name, _partition_for(topic, body.partition, key))

    def write(client: KafkaClient) -> int:
        # With the id of a producer, a batch that is sent again after a lost connection is written once.
        producer = client.init_producer()
        batch = build_batch(
            [record], producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, base_sequence=0
        )
        return client.produce(place, batch).base_offset

    offset = await context.as_client(call.rights, write)
    # The Kafka server does not audit each record of a producer; a person who writes one is worth a line.
    call.rights.changed("record_written", topic=topic.name, partition=place.partition, offset=offset)
    return WrittenRecord(topic=topic.name, partition=place.partition, offset=offset)


def _partition_for(topic: Topic, wanted: int | None, key: bytes | None) -> int:
    """The given partition, else by the key as Java clients choose, else any that has a leader."""
    if wanted is not None:
        check_partition_of(topic, wanted)
        return wanted
    if key is not None:
        return PARTITIONERS[MURMUR2_RANDOM](key) % len(topic.partitions)
    led = [each.index for each in topic.partitions if each.leader >= 0]
    if not led:
        raise NotLeaderOrFollower(f"no partition of {topic.name} has a leader; see the page Cluster")
    return secrets.choice(led)


def _payload(given: PayloadInput | None, what: str) -> bytes | None:
    if given is None:
        return None
    try:
        match given.format:
            case "text":
                return given.data.encode()
            case "hex":
                return bytes.fromhex(given.data)
            case "base64":
                return b64decode("".join(given.data.split()), validate=True)
        payload = given.data.encode()
        msgspec.json.decode(payload)
    except (UnicodeError, RecursionError, Base64Error, msgspec.DecodeError, ValueError) as error:
        raise ApiProblem(400, f"{what} is not valid {given.format}: {str(error)[:200]}") from None
    return payload


def _reading(context: ApiContext, call: ApiCall[Any, Any], partition: int | None) -> TopicReading:
    topic = readable_topic(context.broker, call.rights, call.name("topic"))
    if partition is not None:
        check_partition_of(topic, partition)
        return TopicReading(topic.name, (partition,))
    if len(topic.partitions) > MERGED_PARTITIONS_MAX:
        raise ApiProblem(400, f"topic {topic.name} has {len(topic.partitions)} partitions; choose one of them")
    return TopicReading(topic.name, tuple(each.index for each in topic.partitions))


async def _record(context: ApiContext, call: ApiCall[Any, Any]) -> tuple[str, KeptRecord]:
    topic = readable_topic(context.broker, call.rights, call.name("topic"))
    asked = RecordAsked(topic.name, _number(call, "partition"), _number(call, "offset"))
    check_partition_of(topic, asked.partition)
    found = await context.as_client(call.rights, lambda client: read_one(client, asked))
    if found is None:
        where = f"{topic.name}-{asked.partition} has no record at offset {asked.offset}"
        raise ApiProblem(404, f"{where}: it is not written yet, was deleted or compacted, or ends a transaction")
    if isinstance(found, DamagedBatch):
        raise ApiProblem(409, f"the record cannot be read: {found.error}; continue at offset {found.resume}")
    return topic.name, found


def _number(call: ApiCall[Any, Any], name: str) -> int:
    text = call.name(name)
    if not (text.isascii() and text.isdecimal()) or len(text) > OFFSET_CHARS_MAX or int(text) >= 2**63:
        raise ApiProblem(
            404, f"{text[:40]!r} is not the number of {'an offset' if name == 'offset' else 'a partition'}"
        )
    return int(text)


def _checked(made: Callable[[], R]) -> R:
    try:
        return made()
    except (InvalidCondition, InvalidPosition) as error:
        raise ApiProblem(400, str(error)) from None


async def _asked(context: ApiContext, rights: ClientRights, work: Callable[[KafkaClient], R]) -> R:
    """Run the work. What is wrong in the query is an error of the client."""
    return await context.as_client(rights, lambda client: _checked(lambda: work(client)))


def _as_file(name: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="{name}"'}


def _file_name(topic: str) -> str:
    """The name of a topic, which has only letters, digits, dots, dashes and underscores, as part of a file's name."""
    return "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "_" for char in topic)


HANDLERS: dict[str, ApiHandler] = {
    "GET /api/v1/topics/{topic}/records": list_records,
    "POST /api/v1/topics/{topic}/records": produce_record,
    "GET /api/v1/topics/{topic}/records/events": follow_records,
    "GET /api/v1/topics/{topic}/records.jsonl": export_records,
    "GET /api/v1/topics/{topic}/records/{partition}/{offset}": describe_record,
    "GET /api/v1/topics/{topic}/records/{partition}/{offset}/payload": download_payload,
}
PARTS: Sequence[PartKind[Any, Any]] = ()
