"""Where a query begins or ends, in the spelling of Spark's kafka source.

`earliest`, `latest`, a JSON of offsets per topic and partition in which -2 is earliest and -1 is latest, a time for all
partitions, or a JSON of times. All become one `Position`: a question per partition, which ListOffsets answers.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from tidemill.model.topics import TopicPartition
from tidemill.pipelines.core.errors import WrongOption

LATEST = -1
EARLIEST = -2
WORDS = {"earliest": EARLIEST, "latest": LATEST}
NOTHING_THAT_LATE = -1
"""What ListOffsets answers when all records are older than the time."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place in every partition; `option` is the option that says it."""

    option: str
    everywhere: int | None = None
    each: Mapping[TopicPartition, int] = field(default_factory=dict)
    by_time: bool = False

    def questions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """What ListOffsets is to be asked: EARLIEST, LATEST or a time in ms."""
        wanted = self._wanted(partitions)
        return {part: at for part, at in wanted.items() if self.by_time or at < 0}

    @property
    def numbers(self) -> dict[TopicPartition, int]:
        """The offsets that were given as such."""
        return {} if self.by_time else {part: at for part, at in self.each.items() if at >= 0}

    def place(
        self,
        partitions: Collection[TopicPartition],
        answers: Mapping[TopicPartition, int],
        otherwise: Callable[[TopicPartition], int],
    ) -> dict[TopicPartition, int]:
        """The offsets, given the answers; `otherwise` places a partition that has no record so late."""
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
            raise WrongOption(f"{self.option}: {unknown[0]} is no partition that the query reads")
        return dict(self.each)


def parse_offsets(option: str, text: str, refused: int | None = None) -> Position:
    """`earliest`, `latest` or JSON; `refused` is the one of the two that makes no sense here."""
    word = WORDS.get(text.strip().lower())
    if word is not None and word == refused:
        raise WrongOption(f"{option}: {text.strip().lower()} is not possible in a batch query")
    if word is not None:
        return Position(option, everywhere=word)
    each = parse_json(option, text, "earliest, latest or JSON")
    for part, offset in each.items():
        if offset < EARLIEST or offset == refused:
            raise WrongOption(f"{option}: {offset} is no offset of {part} to use here")
    return Position(option, each=each)


def parse_time(option: str, text: str) -> Position:
    """One time in ms for all partitions."""
    if not text.strip().isdecimal():
        raise WrongOption(f"{option}: {text!r} is not a time in milliseconds since 1970")
    return Position(option, everywhere=int(text), by_time=True)


def parse_times(option: str, text: str) -> Position:
    """A time in ms per partition."""
    each = parse_json(option, text, "JSON")
    for part, time_ms in each.items():
        if time_ms < 0:
            raise WrongOption(f"{option}: {time_ms} is no time for {part}")
    return Position(option, each=each, by_time=True)


def parse_json(option: str, text: str, expected: str) -> dict[TopicPartition, int]:
    """`{"topic": {"0": 12}}` as a number per partition."""
    example = f'such as {{"orders": {{"0": 12, "1": {EARLIEST}}}}}'
    try:
        topics = json.loads(text)
    except ValueError:
        raise WrongOption(f"{option}: {text!r} is not {expected} {example}") from None
    if not isinstance(topics, dict):
        raise WrongOption(f"{option}: {text!r} is not {expected} {example}")
    found = {}
    for topic, partitions in topics.items():
        if not topic.startswith("$"):  # what a checkpoint says beside offsets
            found.update(_partitions(option, topic, partitions, example))
    return found


def _partitions(option: str, topic: str, partitions: object, example: str) -> dict[TopicPartition, int]:
    if not isinstance(partitions, dict):
        raise WrongOption(f"{option}: the partitions of {topic} are not an object {example}")
    found = {}
    for index, number in partitions.items():
        if not index.isdecimal() or type(number) is not int:
            raise WrongOption(f"{option}: {topic} has {index!r}: {number!r}, which is no partition and number")
        found[TopicPartition(topic, int(index))] = number
    return found
