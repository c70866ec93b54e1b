"""Where a query starts or ends, in the notation of Spark's kafka source.

A position is `earliest`, `latest`, JSON of offsets per topic and partition (-2 is earliest, -1 is latest), a time for
all partitions, or JSON of times. Each becomes a `Position`: one ListOffsets request per partition.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from tidemill.model.topics import TopicPartition
from tidemill.pipelines.errors import WrongOption

LATEST = -1
EARLIEST = -2
WORDS = {"earliest": EARLIEST, "latest": LATEST}
NOTHING_THAT_LATE = -1
"""The ListOffsets result when all records are older than the time."""


@dataclass(frozen=True, slots=True)
class Position:
    """A position in every partition. `option` is the name of the option that sets it."""

    option: str
    everywhere: int | None = None
    each: Mapping[TopicPartition, int] = field(default_factory=dict)
    by_time: bool = False

    def questions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The ListOffsets requests: EARLIEST, LATEST or a time in ms."""
        wanted = self._wanted(partitions)
        return {part: at for part, at in wanted.items() if self.by_time or at < 0}

    @property
    def numbers(self) -> dict[TopicPartition, int]:
        """The offsets that were given as numbers."""
        return {} if self.by_time else {part: at for part, at in self.each.items() if at >= 0}

    def place(
        self,
        partitions: Collection[TopicPartition],
        answers: Mapping[TopicPartition, int],
        otherwise: Callable[[TopicPartition], int],
    ) -> dict[TopicPartition, int]:
        """The offsets, given the answers. `otherwise` handles a partition without a record at or after the time."""
        placed = {part: answers.get(part, at) for part, at in self._wanted(partitions).items()}
        return {part: otherwise(part) if at == NOTHING_THAT_LATE else at for part, at in placed.items()}

    def _wanted(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if self.everywhere is not None:
            return dict.fromkeys(partitions, self.everywhere)
        missing = sorted(set(partitions) - set(self.each))
        unknown = sorted(set(self.each) - set(partitions))
        if missing:
            raise WrongOption(f"{self.option}: {missing[0]} is missing; name every partition of the topics")
        if unknown:
            raise WrongOption(f"{self.option}: {unknown[0]} is not a partition that the query reads")
        return dict(self.each)


def parse_offsets(option: str, text: str, refused: int | None = None) -> Position:
    """Parse `earliest`, `latest` or JSON. `refused` is the one of the two that is invalid here."""
    word = WORDS.get(text.strip().lower())
    if word is not None and word == refused:
        raise WrongOption(f"{option}: {text.strip().lower()} is not allowed in a batch query")
    if word is not None:
        return Position(option, everywhere=word)
    each = parse_json(option, text, "earliest, latest or JSON")
    for part, offset in each.items():
        if offset < EARLIEST or offset == refused:
            raise WrongOption(f"{option}: {offset} is not a valid offset for {part}")
    return Position(option, each=each)


def parse_time(option: str, text: str) -> Position:
    """Parse one time in ms for all partitions."""
    if not text.strip().isdecimal():
        raise WrongOption(f"{option}: {text!r} is not a time in milliseconds since 1970")
    return Position(option, everywhere=int(text), by_time=True)


def parse_times(option: str, text: str) -> Position:
    """Parse a time in ms for each partition."""
    each = parse_json(option, text, "JSON")
    for part, time_ms in each.items():
        if time_ms < 0:
            raise WrongOption(f"{option}: {time_ms} is not a valid time for {part}")
    return Position(option, each=each, by_time=True)


def parse_json(option: str, text: str, expected: str) -> dict[TopicPartition, int]:
    """Parse `{"topic": {"0": 12}}` into a number per partition."""
    example = f'such as {{"orders": {{"0": 12, "1": {EARLIEST}}}}}'
    try:
        topics = json.loads(text)
    except ValueError:
        raise WrongOption(f"{option}: {text!r} is not {expected} {example}") from None
    if not isinstance(topics, dict):
        raise WrongOption(f"{option}: {text!r} is not {expected} {example}")
    found = {}
    for topic, partitions in topics.items():
        if not topic.startswith("$"):  # such keys of a checkpoint are not topics
            found.update(_partitions(option, topic, partitions, example))
    return found


def _partitions(option: str, topic: str, partitions: object, example: str) -> dict[TopicPartition, int]:
    if not isinstance(partitions, dict):
        raise WrongOption(f"{option}: the partitions of {topic} are not an object {example}")
    found = {}
    for index, number in partitions.items():
        if not index.isdecimal() or type(number) is not int:
            raise WrongOption(f"{option}: {topic} has {index!r}: {number!r}, which is not a partition and a number")
        found[TopicPartition(topic, int(index))] = number
    return found
