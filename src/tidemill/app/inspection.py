"""Finds missing and damaged files in a data directory without changing anything in it.

The files may belong to a running broker. A file that changes during the inspection is not reported as lost.
"""

from pathlib import Path

from tidemill.app.data_directory import DataDirectory
from tidemill.app.repair import plan
from tidemill.broker import manifest
from tidemill.broker.manifest import PartitionKey
from tidemill.broker.topic_directories import STREAMS, read_topic_id
from tidemill.streams.segments.checkpoint import NAME as CHECKPOINT
from tidemill.streams.segments.checkpoint import decode
from tidemill.streams.segments.missing import missing_segments


def missing_files(data_dir: Path) -> list[str]:
    """One line for each missing or damaged file. Empty for a directory that was never used."""
    found = [f"{step.what}: {step.found}" for step in plan(data_dir, DataDirectory.owner_of(data_dir))]
    contents = manifest.read(data_dir)
    if contents is None:
        damaged = (data_dir / manifest.FILE).exists()
        if damaged or DataDirectory.lost_manifest(data_dir):
            found.append(f"{manifest.FILE} is {'damaged' if damaged else 'missing'}")
        return found
    topics = {read_topic_id(folder): folder for folder in _folders(data_dir / STREAMS)}
    for key, bound in sorted(contents.bounds.items()):
        found += _missing_of(key, bound, topics.get(key.topic_id))
    return found


def _missing_of(key: PartitionKey, bound: int, topic: Path | None) -> list[str]:
    if topic is None:
        return [f"the folder of topic {key.topic_id} is missing, with partition {key.partition}"]
    name, folder = f"{topic.name}-{key.partition}", topic / str(key.partition)
    if not folder.is_dir():
        return [f"{name}: its folder is missing, with the records before offset {bound}"]
    try:
        checkpoint = decode((folder / CHECKPOINT).read_bytes())
    except FileNotFoundError:
        return [f"{name}: its checkpoint is missing"] if bound else []
    if checkpoint is None:
        return [f"{name}: its checkpoint is damaged"]
    sizes = {int(path.stem): path.stat().st_size for path in folder.glob("*.log") if path.stem.isdigit()}
    return [f"{name}: {each.found}" for each in missing_segments(checkpoint, sizes)]


def _folders(streams: Path) -> list[Path]:
    return sorted(each for each in streams.iterdir() if each.is_dir()) if streams.is_dir() else []
