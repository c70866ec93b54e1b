"""The folder of a pipeline: `pipeline.yml`, the files that it names, and the runner's state. `loading` reads it.

shop/pipeline.yml
shop/transformations/*.sql, *.py
shop/.tidemill/checkpoints/<sink>/   Spark's checkpoint; delete it and the sink starts from the beginning
shop/.tidemill/status.json           the runner's state, for `tidemill pipeline status`
shop/.tidemill/spark.log             Spark's log
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tidemill.pipelines.spec.core.spec import Sink, Spec, Transformation

SPEC = "pipeline.yml"
STATE = ".tidemill"


@dataclass(frozen=True, slots=True)
class TransformationStep:
    """A transformation with its text and the views that it reads."""

    transformation: Transformation
    path: Path
    text: str
    reads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Folder:
    """A pipeline that was read and passed every check that is possible without Spark."""

    root: Path
    spec: Spec
    steps: tuple[TransformationStep, ...]

    @property
    def state(self) -> Path:
        """The folder for the runner's own files."""
        return self.root / STATE

    def checkpoint(self, sink: str) -> Path:
        """The folder of Spark's checkpoint for a sink."""
        return self.state.absolute() / "checkpoints" / sink


@dataclass(frozen=True, slots=True)
class SinkRun:
    """A sink of a pipeline that is being started. `say` prints a line for the user."""

    folder: Folder
    sink: Sink
    say: Callable[[str], None]
    append: bool = False
    """Whether rows may be added to a lake that has rows of other queries."""

    @property
    def checkpoint(self) -> Path:
        """The folder of Spark's checkpoint."""
        return self.folder.checkpoint(self.sink.name)


def pipelines_in(root: Path) -> list[Path]:
    """The pipelines of a folder: the folder itself, or those directly below it."""
    if (root / SPEC).exists():
        return [root]
    return sorted(path.parent for path in root.glob(f"*/{SPEC}"))
