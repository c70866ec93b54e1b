"""Conditions on records: JSON paths with comparisons, such as `$.order.total > 100 and $key.region = 'eu'`.

A condition is parsed into a small tree and evaluated by a walk over it: nothing of the client's text runs as a program.
Its length, its depth and the values that one path can select are bounded.

A path begins at the value (`$`) or at `$key`, `$headers`, `$partition`, `$offset` or `$timestamp`. It continues with
`.name`, `['name']`, `[0]`, `[-1]` and `[*]`. It selects any number of values, and a comparison holds if it holds for
one of them. A path alone holds if it selects something. Values of different types are never equal and have no order.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from operator import eq, ge, gt, le, lt, ne
from typing import Any, NamedTuple, TypeAlias

from tidemill.servers.http.core.text_search import TextSearch

CHARS_MAX = 1_000
DEPTH_MAX = 20
STEPS_MAX = 32
VALUES_MAX = 1_000
"""The most values that a path selects from one record."""
ROOTS = ("$key", "$headers", "$partition", "$offset", "$timestamp", "$")
EXAMPLE = "write for example $.order.total > 100"
WILD = None

_TOKEN = re.compile(
    r"\s*(?:(?P<path>\$[A-Za-z]*)|(?P<number>-?\d{1,30}(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?)"
    r"|(?P<text>'(?:[^'\\]|\\.){0,1000}'|\"(?:[^\"\\]|\\.){0,1000}\")|(?P<word>[A-Za-z_][A-Za-z0-9_-]*)"
    r"|(?P<sign><=|>=|!=|==|[=<>()\[\].*]))"
)
"""Every alternative begins with another character and has no nested repeat, so it takes linear time."""

_ORDERS: dict[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_EQUALS: dict[str, Callable[[Any, Any], bool]] = {"=": eq, "==": eq, "!=": ne}
_WORDS = {"true": True, "false": False, "null": None}
Step: TypeAlias = str | int | None


class InvalidCondition(ValueError):
    """A condition cannot be parsed."""


class RecordValues(NamedTuple):
    """What the paths of a condition begin at. A function is called when a path needs the value."""

    value: Callable[[], Any]
    key: Callable[[], Any]
    headers: Mapping[str, list[str | None]]
    partition: int
    offset: int
    timestamp: int


class ValuePath(NamedTuple):
    """A path: its root, and the steps from there. None is the step to every part."""

    root: str
    steps: tuple[Step, ...]

    def select(self, record: RecordValues) -> list[Any]:
        """The values that it selects, bounded."""
        steps = self.steps
        if self.root == "$headers":
            found: list[Any] = _header_values(record.headers, steps[0] if steps else WILD)
            steps = steps[1:]
        else:
            found = [_root(self.root, record)]
        for step in steps:
            found = [each for value in found for each in _parts(value, step)][:VALUES_MAX]
        return [each for each in found if each is not MISSING]


class MissingDocument:
    """The type of `MISSING`."""


MISSING = MissingDocument()
"""The key or the value of a record that is not JSON."""


def _root(name: str, record: RecordValues) -> Any:
    match name:
        case "$":
            return record.value()
        case "$key":
            return record.key()
        case "$partition":
            return record.partition
        case "$offset":
            return record.offset
        case _:
            return record.timestamp


def _header_values(headers: Mapping[str, list[str | None]], step: Step) -> list[Any]:
    if step is WILD:
        return [each for values in headers.values() for each in values][:VALUES_MAX]
    return list(headers.get(step, ())) if isinstance(step, str) else []


def _parts(value: Any, step: Step) -> list[Any]:
    if step is WILD:
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return list(parts)[:VALUES_MAX]
    if isinstance(value, dict) and isinstance(step, str):
        return [value[step]] if step in value else []
    if isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
        return [value[step]]
    return []


Condition: TypeAlias = Callable[[RecordValues], bool]


def parse_condition(text: str) -> Condition:
    """The function that decides about a record; InvalidCondition with one sentence if the text is not a condition."""
    if len(text) > CHARS_MAX:
        raise InvalidCondition(f"the condition has {len(text)} characters, and {CHARS_MAX} are accepted")
    return _Parser(text).parse()


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Parser:
    """A recursive descent parser."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._scan())
        self._next = 0
        self._depth = 0

    def parse(self) -> Condition:
        """The whole condition."""
        found = self._either()
        if self._peek().kind != "end":
            raise self._wrong("expected and, or, or the end")
        return found

    def _scan(self) -> Iterator[_Token]:
        at = 0
        text = self._text.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None or found.lastgroup is None:
                part = text[at : at + 20].strip()
                raise InvalidCondition(f"the condition is not valid at position {at}: {part!r}; {EXAMPLE}")
            yield _Token(found.lastgroup, found[found.lastgroup], found.start(found.lastgroup))
            at = found.end()
        yield _Token("end", "", len(text))

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._peek()
        self._next += token.kind != "end"
        return token

    def _took(self, text: str) -> bool:
        token = self._peek()
        if token.kind in {"word", "sign"} and token.text == text:
            self._next += 1
            return True
        return False

    def _wrong(self, what: str) -> InvalidCondition:
        token = self._peek()
        found = repr(token.text[:20]) if token.text else "the end"
        return InvalidCondition(f"the condition is not valid at position {token.at}, at {found}: {what}; {EXAMPLE}")

    def _either(self) -> Condition:
        parts = [self._both()]
        while self._took("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else lambda record: any(part(record) for part in parts)

    def _both(self) -> Condition:
        parts = [self._one()]
        while self._took("and"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else lambda record: all(part(record) for part in parts)

    def _one(self) -> Condition:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._wrong(f"conditions are nested more than {DEPTH_MAX} deep")
        if self._took("not"):
            inner = self._one()
            found: Condition = lambda record: not inner(record)  # noqa: E731 -- it is one of several forms
        elif self._took("("):
            found = self._either()
            if not self._took(")"):
                raise self._wrong("expected )")
        else:
            found = self._comparison(self._path())
        self._depth -= 1
        return found

    def _path(self) -> ValuePath:
        token = self._peek()
        if token.kind != "path" or token.text not in ROOTS:
            raise self._wrong(f"expected a path that begins with one of {', '.join(reversed(ROOTS))}")
        self._take()
        steps: list[Step] = []
        while (sign := self._peek()).kind == "sign" and sign.text in {".", "["}:
            steps.append(self._step())
            if len(steps) > STEPS_MAX:
                raise self._wrong(f"a path has more than {STEPS_MAX} steps")
        return ValuePath(token.text, tuple(steps))

    def _step(self) -> Step:
        if self._take().text == ".":
            token = self._peek()
            if token.kind != "word":
                raise self._wrong("expected a name after the dot; write other names as ['name']")
            return self._take().text
        token = self._peek()
        step: Step
        if self._took("*"):
            step = WILD
        elif token.kind == "text":
            step = _unquoted(self._take().text)
        elif token.kind == "number" and token.text.lstrip("-").isdecimal():
            step = int(self._take().text)
        else:
            raise self._wrong("expected a number, a quoted name or * in brackets")
        if not self._took("]"):
            raise self._wrong("expected ]")
        return step

    def _comparison(self, path: ValuePath) -> Condition:
        token = self._peek()
        if token.kind == "sign" and token.text in _EQUALS:
            return _compared(path, _EQUALS[self._take().text], self._literal(), ordered=False)
        if token.kind == "sign" and token.text in _ORDERS:
            self._take()
            wanted = self._literal()
            if isinstance(wanted, bool) or wanted is None:
                raise self._wrong(f"{token.text} needs a number or a text")
            return _compared(path, _ORDERS[token.text], wanted, ordered=True)
        if token.kind == "word" and token.text in {"contains", "matches"}:
            self._take()
            wanted = self._literal()
            if not isinstance(wanted, str):
                raise self._wrong(f"{token.text} needs a quoted text")
            test = TextSearch(wanted).finds if token.text == "matches" else lambda text: wanted in text
            return lambda record: any(isinstance(each, str) and test(each) for each in path.select(record))
        return lambda record: bool(path.select(record))

    def _literal(self) -> str | float | bool | None:
        token = self._peek()
        if token.kind == "text":
            return _unquoted(self._take().text)
        if token.kind == "number":
            text = self._take().text
            return int(text) if text.lstrip("-").isdecimal() else float(text)
        if token.kind == "word" and token.text in _WORDS:
            return _WORDS[self._take().text]
        raise self._wrong("expected a number, a quoted text, true, false or null")


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1])


def _compared(path: ValuePath, operator: Callable[[Any, Any], bool], wanted: Any, *, ordered: bool) -> Condition:
    kind = _kind(wanted)

    def holds(record: RecordValues) -> bool:
        for each in path.select(record):
            if _kind(each) is kind:
                if operator(each, wanted):
                    return True
            elif not ordered and operator is ne:
                return True
        return False

    return holds


def _kind(value: Any) -> type:
    return float if isinstance(value, int | float) and not isinstance(value, bool) else type(value)
