"""The interface of a sink type: how it reads its section of `pipeline.yml`, and how it writes rows with Spark.

`tidemill pipeline check` reads a spec without Spark. So a module of this package imports `tidemill.pipelines.spark`
and Arrow only inside `writer`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from tidemill.pipelines.spec.core.section import Section
from tidemill.pipelines.spec.core.spec import Sink, Spec
from tidemill.pipelines.spec.folder import SinkRun

if TYPE_CHECKING:
    from tidemill.pipelines.spark.sinks import Rows, RowsWriter


class SinkType(ABC):
    """One kind of sink. The registry creates one instance of every subclass that has a `name` of its own."""

    name: ClassVar[str]
    """The key in a sink's section that selects this kind. Its value is the target."""
    rank: ClassVar[int] = 100
    """The position in error messages that list the kinds. Kinds of one rank are in the order of their names."""
    keys: tuple[str, ...] = ()
    """The keys of the section, in addition to `name`, from and mode."""
    modes: tuple[str, ...] = ("append", "update", "complete")
    """The output modes of Spark that the sink accepts."""
    is_lake: ClassVar[bool] = False
    """Whether the target is a folder of a lake. The runner locks it."""
    is_timeline: ClassVar[bool] = False
    """Whether the target is a timeline. The runner checks that timelines can be reached."""

    @abstractmethod
    def target(self, part: Section, environment: Mapping[str, str]) -> str:
        """The target, from the value of the key `name`. `environment` has the variables that the value may name."""

    def columns(self, part: Section) -> Mapping[str, str] | None:
        """The values of the keys that only this kind has. `key` and `by` are read for all kinds."""
        del part
        return None

    def problem(self, sink: Sink, spec: Spec) -> str | None:
        """What is wrong with the target, given the whole pipeline: "is orders, which ...". None when it is valid."""
        del sink, spec
        return None

    @abstractmethod
    def writer(self, rows: "Rows", run: SinkRun) -> "RowsWriter":
        """The writer of the query, without checkpoint, trigger and output mode. PipelineError when it cannot start."""
