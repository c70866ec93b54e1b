"""Makes a `Spec` from the parsed `pipeline.yml`. Every error is one line with file, key and advice.

The kinds of sinks are an argument: this module names none of them.
"""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Protocol

from tidemill.client.kafka.errors import InvalidClientOption
from tidemill.client.kafka.options import parse_options
from tidemill.pipelines.errors import WrongOption
from tidemill.pipelines.source.core.options import MAX_BYTES
from tidemill.pipelines.source.core.sizes import parse_bytes
from tidemill.pipelines.spec.core.section import Section
from tidemill.pipelines.spec.core.spark_settings import wrong_setting
from tidemill.pipelines.spec.core.spec import (
    Expectation,
    Format,
    Lost,
    Otherwise,
    Sink,
    Source,
    Spec,
    Transformation,
    Watermark,
)

KEYS = (
    "name",
    "broker",
    "client",
    "timelines",
    "sources",
    "transformations",
    "expectations",
    "sinks",
    "schedule",
    "spark",
)
BROKER = "127.0.0.1:9092"
TIMELINES = "127.0.0.1:6174"
EVERY = "5 seconds"
STARTS = ("earliest", "latest")
CLIENT_NOT = {
    "bootstrap.servers": "is what broker says",
    "group.id": "is made of the names of pipeline and sink, so that each shows its own lag",
}
SOURCE_KEYS = ("topic", "format", "schema", "start", "lost", "watermark", MAX_BYTES)
_VIEW = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


class SinkReading(Protocol):
    """The part of a sink type that reads its section. `tidemill.pipelines.sink.sink_type` has the whole interface."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the section, in addition to the kind, from and mode."""

    @property
    def modes(self) -> tuple[str, ...]:
        """The output modes of Spark that the sink accepts."""

    def target(self, part: Section, environment: Mapping[str, str]) -> str:
        """The value of the kind's own key."""

    def columns(self, part: Section) -> Mapping[str, str] | None:
        """The values of the keys that only this kind has."""

    def problem(self, sink: Sink, spec: Spec) -> str | None:
        """What is wrong with the target, given the whole pipeline."""


def read_spec(file: str, parsed: Any, environment: Mapping[str, str], types: Mapping[str, SinkReading]) -> Spec:
    """The pipeline. Raises WrongSpec for the first error. `types` are the sink types by their names in the file."""
    top = Section(file, "", {} if parsed is None else parsed, KEYS)
    spec = Spec(
        name=top.text("name"),
        broker=top.text("broker", BROKER),
        timelines=top.text("timelines", TIMELINES),
        sources=tuple(_sources(top)),
        transformations=tuple(_transformations(top)),
        expectations=tuple(_expectations(top)),
        sinks=tuple(_sinks(top, environment, types)),
        every=_every(top),
        client=_client(top, environment),
        spark=_spark(top, environment),
    )
    _check(top, spec, types)
    return spec


def _client(top: Section, environment: Mapping[str, str]) -> dict[str, str]:
    """Options of the Kafka client."""
    part = Section(top.file, "client", top.found.get("client", {}))
    for key, instead in CLIENT_NOT.items():
        if key in part.found:
            raise part.wrong(key, instead)
    options = {str(key): part.filled(key, environment) for key in part.found}
    try:
        parse_options({"bootstrap.servers": top.text("broker", BROKER), **options})
    except InvalidClientOption as error:
        raise part.wrong("", f"is wrong: {error}") from None
    return options


def _spark(top: Section, environment: Mapping[str, str]) -> dict[str, str]:
    """Settings of the Spark session."""
    part = Section(top.file, "spark", top.found.get("spark", {}))
    settings = {str(key): part.filled(key, environment) for key in part.found}
    for name in settings:
        if wrong := wrong_setting(name):
            raise part.wrong(name, wrong)
    return settings


def _sources(top: Section) -> Iterator[Source]:
    for name, part in top.sections("sources", SOURCE_KEYS, _VIEW):
        kind = part.choice("format", Format, "json")
        schema = part.text("schema") if kind is Format.JSON else part.optional("schema")
        if kind is Format.RAW and schema is not None:
            raise part.wrong("schema", "is for format json; raw rows have the columns of the topic")
        start = part.word("start", STARTS, "earliest")
        lost = part.choice("lost", Lost, "fail")
        yield Source(name, part.topic("topic"), kind, schema, start, _watermark(part), lost, _max_bytes(part))


def _max_bytes(part: Section) -> int | None:
    if MAX_BYTES not in part.found:
        return None
    try:
        return parse_bytes("it", str(part.found[MAX_BYTES]))
    except WrongOption as error:
        raise part.wrong(MAX_BYTES, f"is wrong: {error}") from None


def _watermark(part: Section) -> Watermark | None:
    if "watermark" not in part.found:
        return None
    inner = Section(part.file, f"{part.path}.watermark", part.found["watermark"], ("column", "delay"))
    return Watermark(inner.text("column"), inner.duration("delay", inner.text("delay")))


def _transformations(top: Section) -> Iterator[Transformation]:
    for name, part in top.sections("transformations", ("file",), _VIEW):
        path = part.text("file")
        if not path.endswith((".sql", ".py")):
            raise part.wrong("file", f"is {path!r}, neither a .sql nor a .py file")
        yield Transformation(name, path)


def _expectations(top: Section) -> Iterator[Expectation]:
    for name, part in top.sections("expectations", ("view", "expect", "otherwise"), _VIEW):
        yield Expectation(name, part.text("view"), part.text("expect"), part.choice("otherwise", Otherwise, "warn"))


def _sinks(top: Section, environment: Mapping[str, str], types: Mapping[str, SinkReading]) -> Iterator[Sink]:
    sink_keys = tuple(dict.fromkeys(key for each in types.values() for key in each.keys))
    for name, part in top.sections("sinks", ("from", "mode", *types, *sink_keys), _NAME):
        given = [kind for kind in types if kind in part.found]
        if len(given) != 1:
            raise part.wrong("", f"needs one of {', '.join(types)}; it has {' and '.join(given) or 'none'}")
        [kind] = given
        for key in sink_keys:
            if key in part.found and key not in types[kind].keys:
                raise part.wrong(key, f"is not for a sink of kind {kind}")
        yield _sink(name, part, kind, types[kind], environment)


def _sink(name: str, part: Section, kind: str, of: SinkReading, environment: Mapping[str, str]) -> Sink:
    mode = part.word("mode", of.modes, "append")
    target = of.target(part, environment)
    return Sink(name, part.text("from"), kind, target, mode, part.optional("key"), _by(part), of.columns(part))


def _by(part: Section) -> tuple[str, ...]:
    given = part.found.get("by", ())
    columns = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, list | tuple) else None
    if columns is None or not all(isinstance(column, str) and _VIEW.fullmatch(column) for column in columns):
        raise part.wrong("by", "is not a column or a list of columns")
    return columns


def _every(top: Section) -> str | None:
    text = top.text("schedule", f"every {EVERY}")
    if text == "once":
        return None
    if not text.startswith("every "):
        raise top.wrong("schedule", f"is {text!r}; write once, or for example every 5 seconds")
    return top.duration("schedule", text.removeprefix("every ").strip())


def _check(top: Section, spec: Spec, types: Mapping[str, SinkReading]) -> None:
    """Check the parts against each other."""
    if not spec.sources:
        raise top.wrong("sources", "is missing: name at least one topic to read")
    if not spec.sinks:
        raise top.wrong("sinks", "is missing: name at least one place to write to")
    twice = {each.name for each in spec.sources} & {each.name for each in spec.transformations}
    if twice:
        raise top.wrong(f"transformations.{min(twice)}", "has the name of a source")
    for expectation in spec.expectations:
        _check_view(top, f"expectations.{expectation.name}.view", expectation.view, spec)
    for sink in spec.sinks:
        _check_view(top, f"sinks.{sink.name}.from", sink.view, spec)
    for sink in spec.sinks:
        if problem := types[sink.kind].problem(sink, spec):
            raise top.wrong(f"sinks.{sink.name}.{sink.kind}", problem)


def _check_view(top: Section, key: str, view: str, spec: Spec) -> None:
    if view not in spec.views:
        near = get_close_matches(view, spec.views, 1)
        advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(spec.views)}"
        raise top.wrong(key, f"names {view}, which is no source or transformation; {advice}")
