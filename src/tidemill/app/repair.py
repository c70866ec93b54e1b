"""Repairs the data directory of a stopped broker: what was found, and the action for it.

Making a plan changes nothing on disk. A step that is carried out keeps the damaged files under other names.
"""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from tidemill.app.data_directory import FILE, DataDirectory, data_without_owner
from tidemill.broker.identity import CLUSTER_ID
from tidemill.broker.topic_directories import unknown_topics
from tidemill.cluster.core.image import TOPICS, PartitionInfo, Topic, encode_topic
from tidemill.cluster.interface import Changed
from tidemill.cluster.journal import (
    COPY,
    JOURNAL,
    JournalDamaged,
    JournalLines,
    acknowledged,
    merged,
    read_file,
    write_file,
)
from tidemill.model.topic_settings import DEFAULTS
from tidemill.model.topics import INTERNAL, UnknownTopic

ASIDE = "{}.damaged-{}"


class RepairStep(NamedTuple):
    """One problem and its repair."""

    what: str
    found: str
    action: str
    act: Callable[[], None]


def plan(data_dir: Path, node_id: int) -> list[RepairStep]:
    """The steps that repair the directory. `node_id` is used when the directory has no owner file."""
    journal, copy = read_file(data_dir / JOURNAL), read_file(data_dir / COPY)
    steps = _owner_steps(data_dir, node_id, merged(journal or JournalLines((), 0, 0), copy))
    if journal is None and copy is None:
        return steps  # a member of a cluster: etcd stores its topics
    return [*steps, *_journal_steps(data_dir, journal or JournalLines((), 0, 0), copy)]


def _owner_steps(data_dir: Path, node_id: int, changes: tuple[Changed, ...]) -> list[RepairStep]:
    if not (data_dir / FILE).exists():
        data = data_without_owner(data_dir)
        cluster = _replay(changes).get(CLUSTER_ID, b"").decode()
        action = f"write it for broker {node_id} (--node-id); in a cluster its replicas are copied again"
        act = partial(DataDirectory.write_new, data_dir, node_id, cluster)
        return [RepairStep(FILE, f"missing, and there are {data}", action, act)] if data else []
    lost = DataDirectory.lost_timelines(data_dir)
    if lost:
        action = "accept the loss: the next start creates an empty timelines file"
        return [
            RepairStep(lost, "missing, with its timelines", action, partial(DataDirectory.forget_timelines, data_dir))
        ]
    return []


def _journal_steps(data_dir: Path, journal: JournalLines, copy: JournalLines | None) -> list[RepairStep]:
    steps = []
    try:
        changes = acknowledged(journal, copy, data_dir / JOURNAL)
    except JournalDamaged as damage:
        changes = merged(journal, copy)
        action = f"write the {len(changes)} intact changes of {JOURNAL} and {COPY}; keep copies of both files"
        found = str(damage).removeprefix(f"{data_dir}/").partition(";")[0]
        steps.append(RepairStep(JOURNAL, found, action, partial(_rewrite, data_dir, changes)))
    present = _replay(changes)
    known = {key.removeprefix(TOPICS) for key in present if key.startswith(TOPICS)}
    lost = [found for found in unknown_topics(data_dir, known) if found.name not in INTERNAL]  # a start recreates those
    steps += [_folder_step(data_dir, found) for found in lost]
    return steps


def _folder_step(data_dir: Path, found: UnknownTopic) -> RepairStep:
    what = f"streams/{found.name}"
    problem = f"records of {found.partitions} partitions, no such topic"
    if not found.topic_id:
        return RepairStep(what, f"{problem}, and no topic-id file", "none: move the folder away yourself", lambda: None)
    action = f"create the topic again with {found.partitions} partitions and default settings"
    return RepairStep(what, problem, action, partial(_create_topic, data_dir, found))


def _replay(changes: tuple[Changed, ...]) -> Mapping[str, bytes]:
    present: dict[str, bytes] = {}
    for change in changes:
        if change.value is None:
            present.pop(change.key, None)
        else:
            present[change.key] = change.value
    return present


def _rewrite(data_dir: Path, changes: tuple[Changed, ...]) -> None:
    names = (JOURNAL, COPY)
    number = next(each for each in count() if not any((data_dir / ASIDE.format(name, each)).exists() for name in names))
    for name in names:
        path = data_dir / name
        if path.exists():
            data_dir.joinpath(ASIDE.format(name, number)).write_bytes(path.read_bytes())
    # The copy is written first: a crash before the journal is written leaves a directory that needs the same repair.
    write_file(data_dir / COPY, changes)
    write_file(data_dir / JOURNAL, changes)


def _create_topic(data_dir: Path, found: UnknownTopic) -> None:
    """Add the topic to the journal, with the id from its folder."""
    node = DataDirectory.owner_of(data_dir)
    partitions = tuple(PartitionInfo(index, node, (node,), (node,), 0) for index in range(found.partitions))
    topic = Topic(found.name, UUID(found.topic_id), partitions, {}, DEFAULTS)
    path = data_dir / JOURNAL
    changes = acknowledged(read_file(path) or JournalLines((), 0, 0), read_file(data_dir / COPY), path)
    revision = changes[-1].revision + 1 if changes else 1
    changes = (*changes, Changed(TOPICS + found.name, encode_topic(topic), revision))
    write_file(data_dir / COPY, changes)
    write_file(path, changes)
