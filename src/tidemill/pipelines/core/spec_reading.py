"""Reads what was parsed from `pipeline.yml` into a `Spec`; every complaint is one line with file, key and advice."""

import re
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from enum import StrEnum
from posixpath import normpath
from typing import Any, TypeVar

from tidemill.client.kafka.errors import InvalidClientOption
from tidemill.client.kafka.options import parse_options
from tidemill.model.errors import InvalidTopic
from tidemill.model.locations import UnsupportedLocation, local_path
from tidemill.model.topics import check_topic_name
from tidemill.pipelines.core.addresses import parse_address
from tidemill.pipelines.core.broker import filled
from tidemill.pipelines.core.errors import WrongOption
from tidemill.pipelines.core.master import wrong_setting
from tidemill.pipelines.core.options import MAX_BYTES
from tidemill.pipelines.core.sizes import parse_bytes
from tidemill.pipelines.core.spec import (
    LAKES,
    Expectation,
    Format,
    Lost,
    Otherwise,
    Sink,
    SinkKind,
    Source,
    Spec,
    Transformation,
    Watermark,
    WrongSpec,
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
MODES = ("append", "update", "complete")
STARTS = ("earliest", "latest")
MODES_OF = {
    **dict.fromkeys(LAKES, ("append",)),
    SinkKind.TIMELINE: ("append", "update"),
    SinkKind.TOPIC: ("append", "update"),
    SinkKind.CLICKHOUSE: ("append", "update"),
}
KEYS_OF = {
    SinkKind.TOPIC: ("key",),
    **dict.fromkeys(LAKES, ("by",)),
    SinkKind.CONSOLE: (),
    SinkKind.TIMELINE: ("id", "due", "body", "key"),
    SinkKind.CLICKHOUSE: ("table", "by"),
}
CLIENT_NOT = {
    "bootstrap.servers": "is what broker says",
    "group.id": "is made of the names of pipeline and sink, so that each shows its own lag",
}
SOURCE_KEYS = ("topic", "format", "schema", "start", "lost", "watermark", MAX_BYTES)
SINK_KEYS = ("key", "by", "id", "due", "body", "table")
_VIEW = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_DURATION = re.compile(r"\d+ (?:millisecond|second|minute|hour|day)s?")
E = TypeVar("E", bound=StrEnum)


class Section:
    """One mapping of the file, and where it is."""

    def __init__(self, file: str, path: str, found: Any, known: Collection[str] | None = None) -> None:
        self.file = file
        self.path = path
        if not isinstance(found, Mapping):
            raise self.wrong("", f"is {_kind(found)}, not a mapping of names to values")
        self.found: Mapping[Any, Any] = found
        for key in found:
            if known is not None and key not in known:
                near = get_close_matches(str(key), known, 1)
                advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
                raise self.wrong(str(key), f"is not known; {advice}")

    def wrong(self, key: str, what: str) -> WrongSpec:
        """The complaint about a key."""
        where = ".".join(part for part in (self.path, key) if part) or "the file"
        return WrongSpec(f"{self.file}: {where} {what}")

    def text(self, key: str, default: str | None = None) -> str:
        """A text that must be there, unless there is a default."""
        value = self.found.get(key, default)
        if value is None:
            raise self.wrong(key, "is missing")
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(key, f"is {_kind(value)}, not a text")
        return value.strip()

    def optional(self, key: str) -> str | None:
        """A text that need not be there."""
        return self.text(key) if key in self.found else None

    def choice(self, key: str, kind: type[E], default: str | None = None) -> E:
        """One of a few words."""
        return kind(self.word(key, [each.value for each in kind], default))

    def word(self, key: str, words: Collection[str], default: str | None = None) -> str:
        """One of a few words."""
        value = self.text(key, default)
        if value not in words:
            near = get_close_matches(value, words, 1)
            advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(words)}"
            raise self.wrong(key, f"is {value!r}; {advice}")
        return value

    def topic(self, key: str) -> str:
        """The name of a topic."""
        name = self.text(key)
        try:
            check_topic_name(name)
        except InvalidTopic as error:
            raise self.wrong(key, f"is {name!r}: {error}") from None
        return name

    def duration(self, key: str, text: str) -> str:
        """A duration in Spark's spelling."""
        if not _DURATION.fullmatch(text):
            raise self.wrong(key, f"is {text!r}; write for example 10 seconds, 5 minutes")
        return text

    def sections(self, key: str, known: Collection[str], name: re.Pattern[str]) -> "Iterator[tuple[str, Section]]":
        """The named parts of a mapping."""
        whole = Section(self.file, key, self.found.get(key, {}))
        for each, found in whole.found.items():
            if not isinstance(each, str) or not name.fullmatch(each):
                raise whole.wrong(str(each), "is not a name: use letters, digits and _")
            yield each, Section(self.file, f"{key}.{each}", found, known)


def read_spec(file: str, parsed: Any, environment: Mapping[str, str]) -> Spec:
    """The pipeline, or WrongSpec for the first thing that is not right."""
    top = Section(file, "", {} if parsed is None else parsed, KEYS)
    spec = Spec(
        name=top.text("name"),
        broker=top.text("broker", BROKER),
        timelines=top.text("timelines", TIMELINES),
        sources=tuple(_sources(top)),
        transformations=tuple(_transformations(top)),
        expectations=tuple(_expectations(top)),
        sinks=tuple(_sinks(top, environment)),
        every=_every(top),
        client=_client(top, environment),
        spark=_spark(top, environment),
    )
    _check(top, spec)
    return spec


def _client(top: Section, environment: Mapping[str, str]) -> dict[str, str]:
    """What the client is told."""
    part = Section(top.file, "client", top.found.get("client", {}))
    for key, instead in CLIENT_NOT.items():
        if key in part.found:
            raise part.wrong(key, instead)
    told = {str(key): _filled(part, key, environment) for key in part.found}
    try:
        parse_options({"bootstrap.servers": top.text("broker", BROKER), **told})
    except InvalidClientOption as error:
        raise part.wrong("", f"is wrong: {error}") from None
    return told


def _spark(top: Section, environment: Mapping[str, str]) -> dict[str, str]:
    """Settings of the Spark that runs it."""
    part = Section(top.file, "spark", top.found.get("spark", {}))
    told = {str(key): _filled(part, key, environment) for key in part.found}
    for name in told:
        if wrong := wrong_setting(name):
            raise part.wrong(name, wrong)
    return told


def _filled(part: Section, key: Any, environment: Mapping[str, str]) -> str:
    """A value as text, filled from the environment."""
    given = part.found[key]
    text = (
        str(given).lower()
        if isinstance(given, bool)
        else str(given)
        if isinstance(given, int | float)
        else part.text(key)
    )
    try:
        return filled(text, environment)
    except WrongOption as error:
        raise part.wrong(key, str(error)) from None


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


def _sinks(top: Section, environment: Mapping[str, str]) -> Iterator[Sink]:
    kinds = [kind.value for kind in SinkKind]
    every_key = ("from", "mode", *kinds, *SINK_KEYS)
    for name, part in top.sections("sinks", every_key, _NAME):
        given = [kind for kind in kinds if kind in part.found]
        if len(given) != 1:
            raise part.wrong("", f"needs one of {', '.join(kinds)}; it has {' and '.join(given) or 'none'}")
        yield _sink(name, part, SinkKind(given[0]), environment)


def _sink(name: str, part: Section, kind: SinkKind, environment: Mapping[str, str]) -> Sink:
    for key in SINK_KEYS:
        if key in part.found and key not in KEYS_OF[kind]:
            raise part.wrong(key, f"is not for a sink of kind {kind}")
    mode = part.word("mode", MODES_OF.get(kind, MODES), "append")
    if kind is SinkKind.CONSOLE and part.found["console"] is not True:
        raise part.wrong("console", "can only be true")
    target = _target(part, kind, environment)
    return Sink(name, part.text("from"), kind, target, mode, part.optional("key"), _by(part), _columns(part, kind))


def _target(part: Section, kind: SinkKind, environment: Mapping[str, str]) -> str:
    if kind is SinkKind.CONSOLE:
        return ""
    if kind is SinkKind.TIMELINE or kind is SinkKind.TOPIC:
        return part.topic(kind)
    part.text(kind)  # a number is not a place
    place = _filled(part, kind, environment)
    try:
        if kind in LAKES:
            return local_path(place)
        parse_address(place)
    except (UnsupportedLocation, WrongOption) as error:
        raise part.wrong(kind, f"is wrong: {error}") from None
    return place


def _columns(part: Section, kind: SinkKind) -> dict[str, str] | None:
    """What else the kind has to be told, by key."""
    if kind is SinkKind.TIMELINE:
        return {key: part.text(key) for key in ("id", "due", "body") if key != "id" or key in part.found}
    return {"table": part.text("table")} if kind is SinkKind.CLICKHOUSE else None


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


def _check(top: Section, spec: Spec) -> None:
    """What only the whole can tell."""
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
    _check_targets(top, spec)


def _check_targets(top: Section, spec: Spec) -> None:
    """Two sinks cannot have one folder, and what is written must not be read again."""
    read = {source.topic: source.name for source in spec.sources}
    folders: dict[str, str] = {}
    for sink in spec.sinks:
        if sink.kind is SinkKind.TOPIC and sink.target in read:
            source = read[sink.target]
            raise top.wrong(
                f"sinks.{sink.name}.topic", f"is {sink.target}, which source {source} reads: it would never end"
            )
        if sink.kind in LAKES:
            other = folders.setdefault(normpath(sink.target), sink.name)
            if other != sink.name:
                what = f"is {sink.target}, where sink {other} writes already"
                raise top.wrong(f"sinks.{sink.name}.{sink.kind}", what)


def _check_view(top: Section, key: str, view: str, spec: Spec) -> None:
    if view not in spec.views:
        near = get_close_matches(view, spec.views, 1)
        advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(spec.views)}"
        raise top.wrong(key, f"names {view}, which is no source or transformation; {advice}")


def _kind(value: Any) -> str:
    kinds = {dict: "a mapping", list: "a list", str: "a text", type(None): "empty", bool: "true or false"}
    return kinds.get(type(value), "a number")
