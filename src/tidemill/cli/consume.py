"""`tidemill consume`: prints the records of a topic, from any offset, to the end or until Ctrl-C."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.connection import (
    TIMEOUT_S,
    Bootstrap,
    Client,
    admin,
    broker_at,
    check_partition,
    client_settings,
    kafka_errors,
    partitions_of,
    reason_of,
)
from tidemill.cli.durations import moment_ms
from tidemill.cli.errors import CommandFailed, WrongUse
from tidemill.cli.options import Json
from tidemill.cli.output import hint

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from tidemill.pipelines.spec.core.broker import KafkaBroker

POLL_S = 0.2
BATCH = 500
_LETTERS = "topkvTh%"
_FIELD = re.compile(r"%(.?)", re.DOTALL)
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\0": "\0"}


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to read.")],
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Start at the first record.")] = False,
    offset: Annotated[int | None, typer.Option(help="Start at this offset. -N is N records before the end.")] = None,
    from_time: Annotated[
        str | None, typer.Option("--from", help="Start at this time: 2026-11-16T10:00, or 15m ago.")
    ] = None,
    partition: Annotated[int | None, typer.Option(help="Read only this partition.", min=0)] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for new records until Ctrl-C.")] = False,
    max_records: Annotated[int | None, typer.Option("--max", "-n", help="Stop after this many records.", min=1)] = None,
    format_: Annotated[
        str,
        typer.Option(
            "--format", help="%t topic, %p partition, %o offset, %k key, %v value, %T time, %h headers; \\n, \\t."
        ),
    ] = "%v\\n",
    committed: Annotated[
        bool, typer.Option("--committed/--uncommitted", help="Leave out aborted transactions.")
    ] = True,
    group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="Read as this group and commit the printed or handled records.")
    ] = None,
    exec_: Annotated[
        str | None,
        typer.Option(
            "--exec",
            metavar="COMMAND",
            help="Run this for each record: value as standard input, TIDEMILL_KEY, _OFFSET... as environment.",
        ),
    ] = None,
    parallel: Annotated[int, typer.Option(help="Number of --exec commands that run in parallel.", min=1)] = 1,
    dead_letter: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Topic for records whose command fails in all attempts.")
    ] = None,
    attempts: Annotated[int, typer.Option(help="Attempts of --exec for a record.", min=1)] = 5,
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """Print the records of a topic: new ones, or those that it already has.

    Example: tidemill consume orders --from-beginning --format '%p/%o %k %v\\n'

    Example: tidemill consume orders --from '15m ago' --follow

    Example: tidemill consume orders --group mailer --max 100

    Example: tidemill consume orders --parallel 50 --exec './handle.sh' --dead-letter orders.dlq
    """
    starts = [from_beginning, offset is not None, from_time is not None]
    as_group = group is not None or exec_ is not None
    _check_start(starts, as_group=as_group, chosen=partition is not None)
    if exec_ is None and (parallel > 1 or dead_letter is not None):
        raise WrongUse("--parallel and --dead-letter need a command; add --exec './handle.sh'")
    broker = broker_at(bootstrap, access)
    partitions = partitions_of(admin(broker), topic)
    if exec_ is not None:
        name = group or f"tidemill-exec-{topic}"
        _execute(broker, topic, exec_, parallel, name, dead_letter, attempts, max_records)
        return
    if partition is not None:
        check_partition(topic, partition, partitions)
    text_of = _formatter(format_, as_json=as_json)
    with _reader(broker, group, committed=committed) as reader, kafka_errors(f"read {topic}"):
        if as_group:
            reader.subscribe([topic])
            _print_all(reader, None, max_records, text_of, commit=True)
            return
        chosen = partitions if partition is None else [partition]
        ends = _assign(reader, topic, chosen, from_beginning, offset, from_time)
        if not any(starts):
            hint(f"waiting for new records of {topic}; --from-beginning also shows the existing ones; Ctrl-C stops")
        _print_all(reader, None if follow or not any(starts) else ends, max_records, text_of)


def _check_start(starts: list[bool], *, as_group: bool, chosen: bool) -> None:
    """Reject two start positions, and for a group every start except its own and the first record."""
    if sum(starts) > 1:
        raise WrongUse("give one of --from-beginning, --offset and --from")
    if as_group and (any(starts[1:]) or chosen):
        raise WrongUse(
            "a group continues at its committed offsets; remove --offset, --from and --partition, or --group"
        )


def _execute(
    broker: "KafkaBroker",
    topic: str,
    command: str,
    workers: int,
    group: str,
    dead_letter: str | None,
    attempts: int,
    limit: int | None,
) -> None:
    from tidemill.cli import parallel as parallel_consumer

    parallel_consumer.run(
        broker, topic, group, command, workers=workers, dead_letter=dead_letter, attempts=attempts, limit=limit
    )


@contextmanager
def _reader(broker: "KafkaBroker", group: str | None, *, committed: bool) -> Iterator["Consumer"]:
    """A consumer that is closed cleanly, also by Ctrl-C."""
    from confluent_kafka import Consumer

    settings = {
        "group.id": group or "tidemill-consume",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "isolation.level": "read_committed" if committed else "read_uncommitted",
    }
    reader = Consumer(client_settings(broker, **settings))
    try:
        yield reader
    except KeyboardInterrupt:
        pass
    finally:
        reader.close()


def _assign(
    reader: "Consumer",
    topic: str,
    partitions: list[int],
    from_beginning: bool,
    offset: int | None,
    from_time: str | None,
) -> dict[int, int]:
    """Set the start positions. Returns the end offset of each partition that has records to read."""
    from confluent_kafka import TopicPartition

    marks = {each: reader.get_watermark_offsets(TopicPartition(topic, each), TIMEOUT_S) for each in partitions}
    at_time: dict[int, int] = {}
    if from_time is not None:
        wanted = [TopicPartition(topic, each, moment_ms(from_time)) for each in partitions]
        at_time = {each.partition: each.offset for each in reader.offsets_for_times(wanted, TIMEOUT_S)}
    places = {}
    for each, (low, high) in marks.items():
        if from_beginning:
            places[each] = low
        elif offset is not None:
            places[each] = max(low, high + offset) if offset < 0 else offset
        elif from_time is not None:
            places[each] = at_time[each] if at_time[each] >= 0 else high
        else:
            places[each] = high
        if offset is not None and not low <= places[each] <= high:
            raise CommandFailed(f"partition {each} has offsets {low} to {high}, not {places[each]}")
    reader.assign([TopicPartition(topic, each, place) for each, place in places.items()])
    return {each: high for each, (_, high) in marks.items() if places[each] < high}


def _print_all(
    reader: "Consumer",
    ends: dict[int, int] | None,
    limit: int | None,
    text_of: Callable[[Any], bytes],
    *,
    commit: bool = False,
) -> None:
    """Print until every partition is at its end (`ends` given), or until Ctrl-C.

    The end is the reader's position or its end-of-partition event, and not the last record seen. Transaction markers,
    aborted records and delayed records have offsets, but the reader never returns them.
    """
    from confluent_kafka import KafkaError

    printed = 0
    out = sys.stdout.buffer
    while ends is None or ends:
        before = printed
        messages = reader.consume(BATCH if limit is None else min(BATCH, limit - printed), POLL_S)
        for message in messages:
            if message.error() and message.error().code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 -- it has no other name
                if ends is not None and message.offset() >= ends.get(message.partition(), 0):
                    ends.pop(message.partition(), None)
                continue
            if message.error():
                if not commit and message.error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                    continue  # the client asks for a coordinator, which reading without a group does not need
                raise CommandFailed(_stopped_at(message))
            if ends is not None and message.partition() not in ends:
                continue
            out.write(text_of(message))
            printed += 1
        out.flush()
        if printed > before and commit:
            reader.commit(asynchronous=False)
        if limit is not None and printed >= limit:
            return
        if ends:
            ends = _unfinished(reader, ends)


def _stopped_at(message: Any) -> str:
    """Why reading stops, and how to continue. A negative offset means that no record is the cause."""
    reason = reason_of(message.error())
    if message.topic() is None or message.offset() is None or message.offset() < 0:
        return f"read: {reason}"
    place = f"{message.topic()}-{message.partition()}"
    options = f"--partition {message.partition()} --offset N, with N after the batch"
    return f"{place} cannot be read at offset {message.offset()}: {reason}; continue with: {options}"


def _unfinished(reader: "Consumer", ends: dict[int, int]) -> dict[int, int]:
    positions = {each.partition: each.offset for each in reader.position(reader.assignment())}
    return {each: end for each, end in ends.items() if positions.get(each, -1) < end}


def _formatter(template: str, *, as_json: bool) -> Callable[[Any], bytes]:
    if as_json:
        return _json_lines()
    for letter in _FIELD.findall(template):
        if not letter or letter not in _LETTERS:
            raise WrongUse(f"--format does not support %{letter}; use {' '.join(f'%{each}' for each in _LETTERS)}")
    for written, meant in _ESCAPES.items():
        template = template.replace(written, meant)
    return lambda message: _FIELD.sub(lambda match: _field(message, match[1]), template).encode(
        "utf-8", "surrogateescape"
    )


def _field(message: Any, letter: str) -> str:
    match letter:
        case "t":
            return str(message.topic())
        case "p":
            return str(message.partition())
        case "o":
            return str(message.offset())
        case "k":
            return _text(message.key()) or ""
        case "v":
            return _text(message.value()) or ""
        case "T":
            return datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC).isoformat(timespec="milliseconds")
        case "h":
            return ",".join(f"{name}={_text(value)}" for name, value in message.headers() or [])
        case _:
            return "%"


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8", "surrogateescape")


def _json_lines() -> Callable[[Any], bytes]:
    """Records in the shape of the JSON API."""
    import msgspec

    from tidemill.servers.http.core.record_rows import record_line

    encode = msgspec.json.Encoder().encode

    def line_of(message: Any) -> bytes:
        headers = tuple(message.headers() or ())
        place = message.topic(), message.partition(), message.offset(), message.timestamp()[1]
        return encode(record_line(*place, message.key(), message.value(), headers)) + b"\n"

    return line_of
