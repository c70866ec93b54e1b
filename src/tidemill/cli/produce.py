"""`tidemill produce`: writes records from an argument, a file or standard input to a topic."""

import secrets
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tidemill.cli.connection import (
    TIMEOUT_S,
    Bootstrap,
    Client,
    admin,
    broker_at,
    check_partition,
    client_settings,
    pairs,
    reason_of,
)
from tidemill.cli.errors import CommandFailed, WrongUse
from tidemill.cli.options import Json
from tidemill.cli.output import Advance, progress, remark, say, show_json
from tidemill.model.topics import check_topic_name
from tidemill.records.hashing import MURMUR2_RANDOM, PARTITIONERS

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

    from tidemill.pipelines.spec.core.broker import KafkaBroker

LINE_BYTES_MAX = 64 << 20
ECHO_MAX = 20
QUIET_S = 10.0
"""After this time without progress a message is printed."""
LAST_WORD_S = 1.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = ("0", "1", "all")
SCHEDULING = "tidemill-"
SCHEDULING_ADVICE = (
    "tidemill-deliver-at, tidemill-delay-ms, tidemill-every-ms and tidemill-move-to are whole milliseconds, "
    "tidemill-schedule-id and tidemill-cancel have 1 to 200 printable characters, and tidemill-cron is minute hour "
    "day-of-month month day-of-week"
)
KEYLESS_ADVICE = "a topic with cleanup.policy=compact rejects records without a key"


class InputLine(NamedTuple):
    """One record of the input, and the number of input bytes that it used."""

    key: bytes | None
    value: bytes
    size: int


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to write to.")],
    message: Annotated[list[str] | None, typer.Option("--message", "-m", help="One record. Repeatable.")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="One record per line of this file.")] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of every record.")] = None,
    key_separator: Annotated[str | None, typer.Option(help="Each line is KEY<separator>VALUE.")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of every record. Repeatable."),
    ] = None,
    partition: Annotated[
        int, typer.Option(help="Write to this partition. -1 chooses by key, or round-robin.", min=-1)
    ] = -1,
    partitioner: Annotated[
        str, typer.Option(help=f"How keys choose partitions, one of {', '.join(PARTITIONERS)}.")
    ] = MURMUR2_RANDOM,
    compression: Annotated[str, typer.Option(help=f"One of {', '.join(CODECS)}.")] = "none",
    acks: Annotated[str, typer.Option(help="0, 1 or all.")] = "all",
    bootstrap: Bootstrap = None,
    access: Client = None,
    as_json: Json = False,
) -> None:
    """Write records to a topic: from --message, from --file, or one per line of standard input.

    Example: tidemill produce orders --key user-123 --message '{"item": "widget"}'

    Example: seq 1000 | tidemill produce numbers

    Example: tidemill produce orders --file orders.txt --key-separator : --compression zstd
    """
    _one_of("--compression", compression, CODECS)
    _one_of("--acks", acks, ACKS)
    _one_of("--partitioner", partitioner, PARTITIONERS)
    if message and file:
        raise WrongUse("give --message or --file, not both")
    if key is not None and key_separator is not None:
        raise WrongUse("give --key or --key-separator, not both")
    if key_separator == "":
        raise WrongUse("--key-separator is empty; give the text between key and value, for example :")
    check_topic_name(topic)
    headers = [pair for each in header or [] for pair in pairs([each], "--header").items()]
    broker = broker_at(bootstrap, access)
    with ExitStack() as stack:
        lines, total = _lines(stack, message, file, key, key_separator)
        partitions = sorted(admin(broker).list_topics(topic, TIMEOUT_S).topics[topic].partitions)
        if partitions and partition >= 0:
            check_partition(topic, partition, partitions)
        turn = _PartitionChoice(partition, partitions)
        run = _Run(topic, turn, headers, _producer(broker, compression, acks, partitioner))
        run.send(lines, stack.enter_context(_bar(topic, total, typed=not message and file is None)))
    run.report(as_json=as_json)


def _one_of(option: str, given: str, choices: Collection[str]) -> None:
    if given not in choices:
        raise WrongUse(f"{option} {given} is not one of {', '.join(choices)}")


def _producer(broker: "KafkaBroker", compression: str, acks: str, partitioner: str) -> "Producer":
    from confluent_kafka import KafkaException, Producer

    settings = client_settings(
        broker,
        acks=acks,
        **{
            "compression.type": compression,
            "linger.ms": 5,
            "partitioner": partitioner,
            "message.max.bytes": LINE_BYTES_MAX,
        },
    )
    try:
        return Producer(settings)
    except KafkaException as error:
        raise WrongUse(error.args[0].str()) from None


def _bar(topic: str, total: int | None, *, typed: bool) -> AbstractContextManager[Advance]:
    """A progress bar. None while the user types records, because it would overwrite the input."""
    if typed and sys.stdin.isatty():
        return nullcontext(lambda _: None)
    return progress(f"producing to {topic}", total, in_bytes=True)


def _lines(
    stack: ExitStack,
    messages: list[str] | None,
    file: Path | None,
    key: str | None,
    separator: str | None,
) -> tuple[Iterable[InputLine], int | None]:
    if messages:
        return (_line(text.encode(), key, separator) for text in messages), sum(len(text.encode()) for text in messages)
    if file is None:
        if sys.stdin.isatty():
            remark("one record per line; Ctrl-D stops")
        return (_line(raw, key, separator) for raw in _stripped(sys.stdin.buffer)), None
    try:
        source = stack.enter_context(file.open("rb"))
    except OSError as error:
        raise CommandFailed(f"cannot read {file}: {error.strerror}") from None
    return (_line(raw, key, separator) for raw in _stripped(source)), file.stat().st_size


def _stripped(source: Iterable[bytes]) -> Iterator[bytes]:
    for raw in source:
        yield raw.removesuffix(b"\n").removesuffix(b"\r")


def _line(raw: bytes, key: str | None, separator: str | None) -> InputLine:
    if separator is None:
        return InputLine(None if key is None else key.encode(), raw, len(raw) + 1)
    before, found, after = raw.partition(separator.encode())
    if not found:
        raise CommandFailed(f"this line has no {separator!r}: {raw[:60].decode(errors='replace')}")
    return InputLine(before, after, len(raw) + 1)


class _PartitionChoice:
    """Chooses the partition of a record: the given one, else by key, else round-robin.

    The first partition is random, so that many calls with one record each also spread. A topic that its first record
    creates has no known partitions yet, so the client chooses there.
    """

    def __init__(self, fixed: int, partitions: list[int]) -> None:
        self._fixed, self._partitions = fixed, partitions
        self._next = secrets.randbelow(len(partitions)) if partitions else 0

    def of(self, key: bytes | None) -> int | None:
        """The partition of the next record. None where the client chooses."""
        if self._fixed >= 0:
            return self._fixed
        if key is not None or not self._partitions:
            return None
        self._next = (self._next + 1) % len(self._partitions)
        return self._partitions[self._next]


class _Run:
    """One run of the command: records sent, records acknowledged, and the first error."""

    def __init__(
        self, topic: str, turn: _PartitionChoice, headers: list[tuple[str, str]], producer: "Producer"
    ) -> None:
        self._topic, self._turn, self._headers, self._producer = topic, turn, headers, producer
        # The first offsets by position in the input, because partitions answer in any order.
        self._places: dict[int, dict[str, Any]] = {}
        self._sent = 0
        self._count = 0
        self._error: str | None = None
        self._reported = False

    def send(self, lines: Iterable[InputLine], advance: Advance) -> None:
        try:
            for line in lines:
                self._send_one(line)
                advance(line.size)
                if self._error:
                    break
            while self._producer.flush(QUIET_S):
                self._report_waiting()
        except KeyboardInterrupt:
            self._producer.flush(LAST_WORD_S)  # counts responses that have already arrived
            remark(f"stopped: {self._count:,} records are known to be written to {self._topic}")
            raise
        if self._error:
            raise CommandFailed(f"write to {self._topic} after {self._count:,} records: {self._error}")

    def _report_waiting(self) -> None:
        """Print that the client is retrying, which it does for minutes when the disk is full or the broker is down."""
        if not self._reported:
            remark(
                f"the broker has not accepted all records for {QUIET_S:g} s, retrying; "
                "check it with: tidemill cluster status; Ctrl-C stops"
            )
        self._reported = True

    def _send_one(self, line: InputLine) -> None:
        from confluent_kafka import KafkaException

        if len(line.value) > LINE_BYTES_MAX:
            self._error = (
                f"a record has {len(line.value):,} bytes, more than the limit of this command, {LINE_BYTES_MAX:,}"
            )
            return
        partition = self._turn.of(line.key)
        where = {} if partition is None else {"partition": partition}
        answered = partial(self._delivered, self._sent)
        while True:
            try:
                self._producer.produce(
                    self._topic, line.value, key=line.key, headers=self._headers, on_delivery=answered, **where
                )
            except BufferError:
                if not self._producer.poll(QUIET_S):
                    self._report_waiting()
            except KafkaException as error:
                self._failed(error.args[0])
                return
            else:
                self._sent += 1
                self._producer.poll(0)
                return

    def _delivered(self, turn: int, error: Any, message: Any) -> None:
        if error is not None:
            self._failed(error)
            return
        self._count += 1
        if turn < ECHO_MAX:
            place = {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}
            self._places[turn] = place

    def _failed(self, error: "KafkaError") -> None:
        """Add advice to the error: brokers send the reason, but the client only passes on the error code."""
        from confluent_kafka import KafkaError

        advice = ""
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            advice = f"; raise the limit with: tidemill topic alter {self._topic} --config max.message.bytes=N"
        elif error.code() == KafkaError.INVALID_RECORD:
            scheduled = any(name.startswith(SCHEDULING) for name, _ in self._headers)
            advice = f"; {SCHEDULING_ADVICE if scheduled else KEYLESS_ADVICE}"
        self._error = self._error or f"{reason_of(error)}{advice}"

    def report(self, *, as_json: bool) -> None:
        written = [place for _, place in sorted(self._places.items())]
        if as_json:
            show_json({"topic": self._topic, "records": self._count, "written": written})
        elif self._count <= ECHO_MAX:
            for each in written:
                say(f"{each['topic']} partition {each['partition']} offset {each['offset']}")
        else:
            say(f"{self._count:,} records written to {self._topic}")
