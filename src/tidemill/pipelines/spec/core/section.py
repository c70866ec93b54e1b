"""One mapping of `pipeline.yml`, with checked access to its keys. Every error is one line with file, key and advice."""

import re
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, TypeVar

from tidemill.model.errors import InvalidTopic
from tidemill.model.topics import check_topic_name
from tidemill.pipelines.errors import WrongOption
from tidemill.pipelines.spec.core.broker import filled
from tidemill.pipelines.spec.core.spec import WrongSpec

_DURATION = re.compile(r"\d+ (?:millisecond|second|minute|hour|day)s?")
E = TypeVar("E", bound=StrEnum)


class Section:
    """One mapping of the file, and its path in the file."""

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
        """The error for a key."""
        where = ".".join(part for part in (self.path, key) if part) or "the file"
        return WrongSpec(f"{self.file}: {where} {what}")

    def text(self, key: str, default: str | None = None) -> str:
        """A text. Without a default the key is required."""
        value = self.found.get(key, default)
        if value is None:
            raise self.wrong(key, "is missing")
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(key, f"is {_kind(value)}, not a text")
        return value.strip()

    def optional(self, key: str) -> str | None:
        """A text, or None without the key."""
        return self.text(key) if key in self.found else None

    def filled(self, key: Any, environment: Mapping[str, str]) -> str:
        """A value as text, with its variables replaced from the environment."""
        given = self.found[key]
        text = (
            str(given).lower()
            if isinstance(given, bool)
            else str(given)
            if isinstance(given, int | float)
            else self.text(key)
        )
        try:
            return filled(text, environment)
        except WrongOption as error:
            raise self.wrong(key, str(error)) from None

    def choice(self, key: str, kind: type[E], default: str | None = None) -> E:
        """One value of an enum."""
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
        """The named sections below a key."""
        whole = Section(self.file, key, self.found.get(key, {}))
        for each, found in whole.found.items():
            if not isinstance(each, str) or not name.fullmatch(each):
                raise whole.wrong(str(each), "is not a name: use letters, digits and _")
            yield each, Section(self.file, f"{key}.{each}", found, known)


def _kind(value: Any) -> str:
    kinds = {dict: "a mapping", list: "a list", str: "a text", type(None): "empty", bool: "true or false"}
    return kinds.get(type(value), "a number")
