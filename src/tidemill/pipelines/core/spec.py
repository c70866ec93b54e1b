"""What a pipeline is made of, as `pipeline.yml` says it: sources -> transformations -> sinks, and what must hold."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tidemill.pipelines.core.broker import KafkaBroker
from tidemill.pipelines.core.errors import PipelineError


class WrongSpec(PipelineError):
    """A pipeline.yml, or a file that it names, is not right."""


class Format(StrEnum):
    """How the values of a source become columns."""

    JSON = "json"
    RAW = "raw"


class Otherwise(StrEnum):
    """What happens to a row for which an expectation does not hold."""

    DROP = "drop"
    FAIL = "fail"
    WARN = "warn"


class Lost(StrEnum):
    """What happens when records of a source are gone before they were read."""

    FAIL = "fail"
    SKIP = "skip"


class SinkKind(StrEnum):
    """Where a sink writes to."""

    TOPIC = "topic"
    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"
    CONSOLE = "console"
    TIMELINE = "timeline"
    CLICKHOUSE = "clickhouse"


LAKES = (SinkKind.PARQUET, SinkKind.DELTA, SinkKind.ICEBERG)
"""Kinds that are a folder of files."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """How late rows may be: those older than the newest by more than `delay` are left out."""

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
    """What a micro-batch reads at most; None is the default of the source."""


@dataclass(frozen=True, slots=True)
class Transformation:
    """A view made of other views, by a SQL file or by the function of its name in a Python file."""

    name: str
    file: str

    @property
    def sql(self) -> bool:
        """Whether it is SQL."""
        return self.file.endswith(".sql")


@dataclass(frozen=True, slots=True)
class Expectation:
    """What must be true of every row of a view."""

    name: str
    view: str
    predicate: str
    otherwise: Otherwise


@dataclass(frozen=True, slots=True)
class Sink:
    """Where the rows of a view go."""

    name: str
    view: str
    kind: SinkKind
    target: str
    mode: str = "append"
    key: str | None = None
    by: tuple[str, ...] = ()
    columns: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Spec:
    """A pipeline; `every` is None when it runs until the topics end and then stops."""

    name: str
    broker: str
    timelines: str
    sources: tuple[Source, ...]
    transformations: tuple[Transformation, ...]
    expectations: tuple[Expectation, ...]
    sinks: tuple[Sink, ...]
    every: str | None
    client: Mapping[str, str] = field(default_factory=dict)
    """What the Kafka client is told beside the address, in Kafka's spelling."""
    spark: Mapping[str, str] = field(default_factory=dict)
    """Settings of the Spark that runs it."""

    @property
    def reached(self) -> KafkaBroker:
        """The broker, and how to be let in there."""
        return KafkaBroker(self.broker, self.client)

    @property
    def kafka(self) -> dict[str, str]:
        """How sources and sinks of topics are told about the broker."""
        return self.reached.kafka

    @property
    def views(self) -> tuple[str, ...]:
        """The names that SQL can use."""
        return (*(each.name for each in self.sources), *(each.name for each in self.transformations))
