"""Checks that a lake has every record of its topic exactly once.

The audit does not trust the commits. It reads the offsets of all rows from the files and looks for holes and
duplicates. A hole need not be a loss, because transaction markers, aborted records and compacted records also take
offsets. So the broker can be asked: a hole in which it still has a record is reported as lost.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from tidemill.client.kafka import EARLIEST, LATEST, KafkaClient
from tidemill.client.kafka.kernels import chosen_kernels
from tidemill.model.topics import TopicPartition
from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.lake.core.contents import AuditVerdict, LakeDamaged, LakeFile, OffsetRun, judge
from tidemill.pipelines.lake.interface import Lake
from tidemill.records.arrow import Decoder


@dataclass(frozen=True, slots=True)
class LakeAudit:
    """The verdicts, and the files that should not be there."""

    verdicts: tuple[AuditVerdict, ...]
    strays: tuple[str, ...]

    @property
    def contiguous(self) -> bool:
        """Whether every offset of every partition has one row, and every file belongs to a commit."""
        return not self.strays and all(verdict.contiguous for verdict in self.verdicts)


def audit(lake: Lake) -> LakeAudit:
    """Read the offsets of all rows."""
    runs: dict[int, list[OffsetRun]] = defaultdict(list)
    for file in lake.files():
        if file.partition < 0:
            raise PipelineError(f"{lake.root} has rows without offsets; only archives of topics can be audited")
        runs[file.partition].extend(_runs(lake.root, file))
    verdicts = tuple(judge(partition, found) for partition, found in sorted(runs.items()))
    return LakeAudit(verdicts, tuple(lake.strays()))


def lost(client: KafkaClient, topic: str, verdicts: Iterable[AuditVerdict]) -> dict[int, int]:
    """How many records the broker still has in the holes, by partition."""
    found: dict[int, int] = {}
    for verdict in verdicts:
        part = TopicPartition(topic, verdict.partition)
        begin = client.list_offsets({part: EARLIEST})[part].offset
        counts = (_records(client, part, max(hole.first, begin), hole.end) for hole in verdict.holes)
        found[verdict.partition] = sum(counts)
    return found


def left_to_archive(client: KafkaClient, lake: Lake, topic: str) -> int:
    """How many offsets of the topic are not in the lake yet. Used for a progress bar."""
    parts = [TopicPartition(topic, index) for index in client.metadata([topic])[topic].leaders]
    ends = client.list_offsets(dict.fromkeys(parts, LATEST), committed=True)
    begins = {part: found.offset for part, found in client.list_offsets(dict.fromkeys(parts, EARLIEST)).items()}
    for file in lake.files():
        part = TopicPartition(topic, file.partition)
        begins[part] = max(begins.get(part, 0), file.last + 1)
    return sum(max(0, end.offset - begins[part]) for part, end in ends.items())


def verdict_text(verdict: AuditVerdict, lost_in: Mapping[int, int] | None) -> str:
    """The verdict on a partition in one word."""
    if verdict.doubled:
        return "doubled"
    if not verdict.holes:
        return "contiguous"
    if lost_in is None:
        return "holes"
    return "lost" if lost_in[verdict.partition] else "complete"


def _runs(root: Path, file: LakeFile) -> Iterator[OffsetRun]:
    try:
        offsets = np.sort(pq.read_table(root / file.path, columns=["offset"], partitioning=None)["offset"].to_numpy())
    except FileNotFoundError:
        raise LakeDamaged(
            f"{root / file.path} is missing, but a commit names it; restore the file from a backup"
        ) from None
    except (OSError, ValueError) as error:
        raise LakeDamaged(f"{root / file.path} cannot be read: {error}") from None
    if len(offsets) != file.rows:
        raise LakeDamaged(f"{root / file.path} has {len(offsets)} rows, but its commit says {file.rows}")
    cuts = np.flatnonzero(np.diff(offsets) != 1) + 1
    for run in np.split(offsets, cuts):
        yield OffsetRun(int(run[0]), int(run[-1]) + 1)


def _records(client: KafkaClient, part: TopicPartition, start: int, end: int) -> int:
    decoder = Decoder(
        part.topic,
        part.partition,
        columns=("offset",),
        kernels=chosen_kernels(),
        on_unreadable=lambda _: None,  # no archive could have read its records
    )
    at, count = start, 0
    if start >= end:
        return 0
    for piece in client.read_range(part, start, end, committed=True):
        count += sum(batch.num_rows for batch in decoder.decode(piece.records, at, end, piece.aborted))
        at = piece.next_offset
    return count
