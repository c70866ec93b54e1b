"""Plans what a query reads next. It asks the broker for topics and offsets, and `core` computes the ranges.

It runs in the driver and asks for metadata and offsets only. One exception: a trigger with a byte limit reads a small
sample of each partition.
"""

from collections.abc import Iterable, Mapping

from tidemill.client.kafka import KafkaClient, TopicInfo
from tidemill.model.errors import UnknownTopicOrPartition
from tidemill.model.topics import TopicPartition
from tidemill.pipelines.errors import GO_ON, GO_ON_ANEW, DataLost, WrongOption
from tidemill.pipelines.source.core.offsets import (
    OffsetRange,
    QueryProgress,
    limited,
    newcomers,
    packed,
    ranges_between,
    split,
)
from tidemill.pipelines.source.core.options import SourceOptions
from tidemill.pipelines.source.core.positions import EARLIEST, LATEST, NOTHING_THAT_LATE, Position
from tidemill.pipelines.source.core.pushdown import Pushed
from tidemill.pipelines.source.record_sizes import measure

LARGEST_RECORD_BYTES = 1024 * 1024
"""The default limit of brokers. When the budget suffices for records of this size, none are sampled."""


class Planner:
    """Plans the offset ranges of one query."""

    def __init__(self, client: KafkaClient, options: SourceOptions) -> None:
        self._client = client
        self._options = options

    def batch(self, pushed: Pushed = Pushed()) -> list[tuple[OffsetRange, ...]]:  # noqa: B008 - it is immutable
        """The tasks of a batch query, cut to its filters where that is possible without reading records."""
        partitions = self._partitions()
        start = self._bounded(self._options.starting, self._place(self._options.starting, partitions))
        end = self._bounded(self._options.ending, self._place(self._options.ending, partitions))
        self._check_order(start, end)
        wanted = [pushed.cut(OffsetRange(part, start[part], end[part])) for part in partitions if pushed.wants(part)]
        return self._cut(sorted(each for each in self._since(wanted, pushed.since_ms) if each.start < each.end))

    def beginning(self) -> QueryProgress:
        """The offsets at which a streaming query without a checkpoint starts."""
        return self._with_topic_ids(self._place(self._options.starting, self._partitions()))

    def newest(self) -> QueryProgress:
        """The current ends of the logs."""
        return self._with_topic_ids(self._ask(dict.fromkeys(self._partitions(), LATEST)))

    def advance(self, start: QueryProgress, newest: QueryProgress, *, unlimited: bool) -> QueryProgress:
        """The end of the next micro-batch. Raises DataLost when records in between were deleted."""
        self._check_losses(start, newest)
        if unlimited:
            return newest
        first = self._first(newcomers(start, newest))
        begin = {part: first.get(part, start.offsets.get(part, 0)) for part in newest.offsets}
        end = dict(newest.offsets)
        if self._options.max_offsets is not None:
            end = limited(begin, end, self._options.max_offsets, {})
        if self._options.max_bytes is not None:
            end = self._within_bytes(begin, end, self._options.max_bytes)
        return QueryProgress(end, newest.ids)

    def _within_bytes(
        self, begin: Mapping[TopicPartition, int], end: dict[TopicPartition, int], budget: int
    ) -> dict[TopicPartition, int]:
        """The end, moved back to about this many bytes. Records are sampled only if the budget may not suffice."""
        waiting = [OffsetRange(part, begin[part], end[part]) for part in end if begin[part] < end[part]]
        if sum(each.size for each in waiting) * LARGEST_RECORD_BYTES <= budget:
            return end
        found = measure(self._client, waiting, budget, committed=self._options.committed)
        measured = {each.partition: size for each, size in zip(waiting, found, strict=True)}
        ends = end | {part: size.until for part, size in measured.items()}
        return limited(begin, ends, budget, {part: size.record_bytes for part, size in measured.items()})

    def backlog(self, start: QueryProgress, newest: QueryProgress) -> int:
        """The number of offsets in between."""
        return sum(each.size for each in self._between(start, newest))

    def tasks(self, start: QueryProgress, end: QueryProgress) -> list[tuple[OffsetRange, ...]]:
        """The tasks of a micro-batch."""
        return self._cut(self._between(start, end))

    def _between(self, start: QueryProgress, end: QueryProgress) -> list[OffsetRange]:
        return ranges_between(start, end, self._first(newcomers(start, end)))

    def _since(self, ranges: list[OffsetRange], since_ms: int | None) -> list[OffsetRange]:
        """The ranges from the first record that is not older than this time."""
        if since_ms is None:
            return ranges
        first = self._ask({each.partition: since_ms for each in ranges if each.start < each.end})
        return [
            each._replace(start=max(each.start, first[each.partition]))
            for each in ranges
            if first.get(each.partition, NOTHING_THAT_LATE) != NOTHING_THAT_LATE
        ]

    def _cut(self, ranges: list[OffsetRange]) -> list[tuple[OffsetRange, ...]]:
        """Split large ranges and pack small ones together."""
        limits = self._options.min_partitions, self._options.max_records
        return packed(split(ranges, *limits), *limits)

    def _with_topic_ids(self, offsets: Mapping[TopicPartition, int]) -> QueryProgress:
        """Offsets, with the topic ids as they are after the offsets were asked, not before.

        The client retries a deleted topic for a while, so the answer may come from a new topic of the same name.
        """
        topics = self._client.known({part.topic for part in offsets})
        return QueryProgress(offsets, {each.name: each.topic_id.hex for each in topics if each.topic_id is not None})

    def _partitions(self) -> list[TopicPartition]:
        wanted = self._options.subscription
        if wanted.pattern is not None:
            topics = self._client.topics(wanted.pattern)
        else:
            topics = self._named(wanted.topics or {part.topic for part in wanted.assigned})
        there = [TopicPartition(name, index) for name, topic in topics.items() for index in topic.leaders]
        absent = sorted(part for part in wanted.assigned if part.topic in topics and part not in there)
        if absent:
            raise WrongOption(f"assign: topic {absent[0].topic} has no partition {absent[0].partition}")
        return [part for part in there if not wanted.assigned or part in wanted.assigned]

    def _named(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        if self._options.fail_on_data_loss:
            return self._client.metadata(names)
        found: dict[str, TopicInfo] = {}
        for name in sorted(names):
            try:
                found.update(self._client.metadata([name]))
            except UnknownTopicOrPartition:
                continue  # deleted; it may be created again
        return found

    def _ask(self, questions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if not questions:
            return {}
        found = self._client.list_offsets(questions, committed=self._options.committed)
        return {part: answer.offset for part, answer in found.items()}

    def _first(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._ask(dict.fromkeys(partitions, EARLIEST))

    def _place(self, position: Position, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        answers = self._ask(position.questions(partitions))
        ends = self._ask({part: LATEST for part, at in answers.items() if at < 0})

        def otherwise(part: TopicPartition) -> int:
            if position is self._options.starting and self._options.no_later_record == "error":
                raise WrongOption(
                    f"{position.option}: {part} has no record at or after that time; "
                    "set startingOffsetsByTimestampStrategy=latest to begin at its end"
                )
            return ends[part]

        return position.place(partitions, answers, otherwise)

    def _bounded(self, position: Position, placed: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Limit positions to the end of the log: a batch query does not wait for records that are not written yet."""
        if not position.numbers:
            return placed
        ends = self._client.list_offsets(dict.fromkeys(position.numbers, LATEST))  # open transactions may still commit
        beyond = {part: end.offset for part, end in sorted(ends.items()) if end.offset < placed[part]}
        for part, at in beyond.items():
            if self._options.fail_on_data_loss:
                raise DataLost(f"{position.option}: {part} ends at offset {at}, before {placed[part]}; {GO_ON}")
        return placed | beyond

    def _check_order(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> None:
        """Refuse an end before the start, unless the log has merely lost the records in between."""
        starting, ending = self._options.starting, self._options.ending
        for part in sorted(part for part in start if end[part] < start[part]):
            if self._options.fail_on_data_loss or starting.by_time or part in starting.numbers:
                raise WrongOption(
                    f"{ending.option}: {part} ends at offset {end[part]}, before {start[part]} "
                    f"where {starting.option} begins"
                )

    def _check_losses(self, start: QueryProgress, newest: QueryProgress) -> None:
        for topic in sorted(start.renewed_in(newest)) if self._options.fail_on_recreation else ():
            raise DataLost(f"topic {topic} was deleted and created again since the last micro-batch; {GO_ON_ANEW}")
        if not self._options.fail_on_data_loss:
            return
        for part, offset in sorted(start.offsets.items()):
            end = newest.offsets.get(part)
            if end is None:
                raise DataLost(f"{part} was deleted with the records after offset {offset}; {GO_ON}")
            if end < offset:
                raise DataLost(f"{part} ends at offset {end}, before the query's offset {offset}; {GO_ON}")
