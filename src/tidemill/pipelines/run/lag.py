"""Asks the broker how far groups are behind: in records, and in seconds by the age of the oldest unread record."""

from collections.abc import Collection, Iterable

from tidemill.client.kafka import EARLIEST, LATEST, KafkaClient
from tidemill.client.kafka.kernels import chosen_kernels
from tidemill.model.topics import TopicPartition
from tidemill.pipelines.lake.core.replay import positions_from_texts
from tidemill.pipelines.run.core.report import GroupLag
from tidemill.pipelines.topic.core.ledger import is_piece
from tidemill.records.arrow import Decoder

PEEK_BYTES = 64 * 1024


def lags_of(client: KafkaClient, groups: Iterable[str], topics: Collection[str], now_ms: int) -> list[GroupLag]:
    """The lag of each group in each partition that it has read.

    Sinks and replays are left out: they only store notes there.
    """
    found: list[GroupLag] = []
    for group in sorted(groups):
        kept = {part: at for part, at in client.group_offsets(group).items() if part.topic in topics}
        committed = {part: at.offset for part, at in kept.items() if not _is_note(at.metadata)}
        ends = client.list_offsets(dict.fromkeys(committed, LATEST), committed=True) if committed else {}
        for part, offset in sorted(committed.items()):
            end = ends[part].offset
            lag_s = _age_s(client, part, offset, now_ms) if offset < end else 0.0
            found.append(GroupLag(group, part.topic, part.partition, offset, end, lag_s))
    return found


def _is_note(text: str) -> bool:
    return is_piece(text) or bool(positions_from_texts([text]))


def _age_s(client: KafkaClient, part: TopicPartition, offset: int, now_ms: int) -> float:
    """The age of the record at an offset, or of the first record after it that still exists."""
    start = max(offset, client.list_offsets({part: EARLIEST})[part].offset)
    decoder = Decoder(
        part.topic,
        part.partition,
        columns=("timestamp",),
        rows=1,
        kernels=chosen_kernels(),
        on_unreadable=lambda _: None,  # the next readable record gives the age as well
    )
    piece = client.fetch(part, start, max_bytes=PEEK_BYTES, committed=True)
    for rows in decoder.decode(piece.records, start, piece.next_offset, piece.aborted):
        stamp_ms = int(rows.column("timestamp")[0].value) // 1000
        return round(max(0, now_ms - stamp_ms) / 1000, 1)
    return 0.0
