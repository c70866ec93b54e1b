"""The parts of a pipeline, as `pipeline.yml` defines them: sources -> transformations -> sinks, and expectations."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.spec.core.broker import KafkaBroker


class WrongSpec(PipelineError):
    """A pipeline.yml, or a file that it names, is invalid."""


class Format(StrEnum):
    """How the values of a source become columns."""

    JSON = "json"
    RAW = "raw"


class Otherwise(StrEnum):
    """What happens to a row that does not meet an expectation."""

    DROP = "drop"
    FAIL = "fail"
    WARN = "warn"


class Lost(StrEnum):
    """What happens when records of a source were deleted before the pipeline read them."""

    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Watermark:
    """How late rows may be. Rows that are older than the newest row by more than `delay` are dropped."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True)
class Source:
    """A topic as a view."""

    name: str
    topic: str
    format: Format
    schema: str | None
    start: str
    watermark: Watermark | None
    lost: Lost = Lost.FAIL
    max_bytes: int | None = None
    """The limit of a micro-batch; None is the default of the source."""


@dataclass(frozen=True, slots=True)
class Transformation:
    """A view made of other views, by a SQL file or by the function with the name of the view in a Python file."""

    name: str
    file: str

    @property
    def sql(self) -> bool:
        """Whether it is SQL."""
        return self.file.endswith(".sql")


@dataclass(frozen=True, slots=True)
class Expectation:
    """A condition for every row of a view."""

    name: str
    view: str
    predicate: str
    otherwise: Otherwise


@dataclass(frozen=True, slots=True)
class Sink:
    """Where the rows of a view are written. `kind` names a sink type; `target` is a topic, a folder or an address."""

    name: str
    view: str
    kind: str
    target: str
    mode: str = "append"
    key: str | None = None
    by: tuple[str, ...] = ()
    columns: Mapping[str, str] | None = None
    """The keys that only this kind has, with their values."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A pipeline. `every` is None when it reads to the end of its topics and then stops."""

    name: str
    broker: str
    timelines: str
    sources: tuple[Source, ...]
    transformations: tuple[Transformation, ...]
    expectations: tuple[Expectation, ...]
    sinks: tuple[Sink, ...]
    every: str | None
    client: Mapping[str, str] = field(default_factory=dict)
    """Options of the Kafka client in addition to the address, in Kafka's spelling."""
    spark: Mapping[str, str] = field(default_factory=dict)
    """Settings of the Spark session."""

    @property
    def reached(self) -> KafkaBroker:
        """The broker's address and the options of its client."""
        return KafkaBroker(self.broker, self.client)

    @property
    def kafka(self) -> dict[str, str]:
        """The broker as options of Spark sources and sinks."""
        return self.reached.kafka

    @property
    def views(self) -> tuple[str, ...]:
        """The names that SQL can use."""
        return (*(each.name for each in self.sources), *(each.name for each in self.transformations))
