"""Regular expressions over topic names, matched in linear time.

A client sends the pattern of a subscription and the broker matches it, so no pattern may keep the broker busy. Python's
`re` needs exponential time for some patterns (`(a+)+$`). This is a small engine of the RE2 kind: it compiles the
pattern into a set of states, reads a name once, and advances all states together.

Supported: literals, `.`, `[...]` and `[^...]` with ranges, `\\d \\w \\s` and their opposites, groups `(...)`, `(?:...)`
and `(?P<name>...)`, `|`, `* + ?` and `{m,n}` (lazy forms mean the same here), `^` and `$` for the ends of the name,
`(?i)` at the beginning. A name must match as a whole. Everything else (look-around, back references) is rejected, as in
RE2.
"""

import re
from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple, TypeAlias

from tidemill.model.errors import InvalidRegularExpression

STATES_MAX = 1_000
REPEAT_MAX = 1_000
DEPTH_MAX = 50

Test: TypeAlias = Callable[[str], bool]


class _Fragment(NamedTuple):
    """A part of the machine: its first state, and the open exits (state, slot) to connect to the next part."""

    start: int
    ends: list[tuple[int, int]]


_CLASSES: dict[str, Test] = {
    "d": lambda char: char in "0123456789",
    "w": lambda char: char == "_" or (char.isascii() and char.isalnum()),
    "s": lambda char: char in " \t\n\r\f\v",
}
_ANY_CASE = "(?i)"
_GROUP_KIND = re.compile(r"\?(?::|P?<[A-Za-z_][A-Za-z0-9_]*>)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}


class TopicPattern:
    """A compiled pattern for topic names."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._machine = PatternMachine(source)
        self._start = self._machine.compile()

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        machine = self._machine
        states = machine.reach([self._start], begins=True, ends=not name)
        for position, char in enumerate(name, 1):
            following = [
                machine.exits[state][0] for state in states if (test := machine.tests[state]) is not None and test(char)
            ]
            if not following:
                return False
            states = machine.reach(following, begins=False, ends=position == len(name))
        return machine.accept in states


class PatternMachine:
    """A recursive descent parser that builds the state machine of a pattern.

    State i either tests one character (`tests[i]`, then moves to `exits[i][0]`) or moves to all its exits without
    reading one. An anchor does so only at its end of the name.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self._folds = source.startswith(_ANY_CASE)
        self.position = len(_ANY_CASE) if self._folds else 0
        self.depth = 0
        self.tests: list[Test | None] = []
        self.exits: list[list[int]] = []
        self.anchors: dict[int, str] = {}
        self.accept = -1

    def compile(self) -> int:
        """Build the machine. Returns its first state."""
        piece = self._alternatives()
        if self.position < len(self.source):
            raise self._wrong("unmatched )")
        self.accept = self._state(None)
        self._tie(piece, self.accept)
        return piece.start

    def reach(self, states: list[int], *, begins: bool, ends: bool) -> set[int]:
        """Return these states and all that can be reached from them without reading a character."""
        holds = {"^": begins, "$": ends, "": True}
        seen = set(states)
        waiting = list(seen)
        while waiting:
            state = waiting.pop()
            if self.tests[state] is None and holds[self.anchors.get(state, "")]:
                fresh = [each for each in self.exits[state] if each not in seen]
                seen.update(fresh)
                waiting.extend(fresh)
        return seen

    def _wrong(self, what: str) -> InvalidRegularExpression:
        return InvalidRegularExpression(f"pattern {self.source[:100]!r} is invalid at position {self.position}: {what}")

    def _state(self, test: Test | None, *exits: int) -> int:
        if len(self.tests) >= STATES_MAX:
            raise self._wrong("the pattern is too large")
        self.tests.append(test)
        self.exits.append(list(exits))
        return len(self.tests) - 1

    def _tie(self, piece: _Fragment, target: int) -> None:
        for state, slot in piece.ends:
            exits = self.exits[state]
            exits.extend([target] * (slot + 1 - len(exits)))
            exits[slot] = target

    def _peek(self) -> str:
        return self.source[self.position] if self.position < len(self.source) else ""

    def _next(self) -> str:
        char = self._peek()
        if not char:
            raise self._wrong("the pattern ends too early")
        self.position += 1
        return char

    def _nothing(self) -> _Fragment:
        state = self._state(None)
        return _Fragment(state, [(state, 0)])

    def _alternatives(self) -> _Fragment:
        pieces = [self._sequence()]
        while self._peek() == "|":
            self.position += 1
            pieces.append(self._sequence())
        if len(pieces) == 1:
            return pieces[0]
        start = self._state(None, *(piece.start for piece in pieces))
        return _Fragment(start, [end for piece in pieces for end in piece.ends])

    def _sequence(self) -> _Fragment:
        whole: _Fragment | None = None
        while self._peek() not in {"", "|", ")"}:
            piece = self._repeated()
            if whole is not None:
                self._tie(whole, piece.start)
                piece = _Fragment(whole.start, piece.ends)
            whole = piece
        return whole or self._nothing()

    def _repeated(self) -> _Fragment:
        begin = self.position
        piece = self._atom()
        end = self.position
        low, high = self._quantifier()
        if (low, high) == (1, 1):
            return piece
        if high == 0:
            return self._nothing()
        after = self.position

        def another() -> _Fragment:
            """Compile the atom again, because a part of the machine can be used in only one place."""
            self.position = begin
            again = self._atom()
            self.position = end
            return again

        whole = self._times(chain([piece], iter(another, None)), low, high)
        self.position = after
        return whole

    def _quantifier(self) -> tuple[int, int | None]:
        char = self._peek()
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if char in simple:
            self.position += 1
            bounds = simple[char]
        elif char == "{":
            bounds = self._braces()
        else:
            return 1, 1
        if self._peek() == "?":  # lazy: the same names match
            self.position += 1
        if self._peek() in {"*", "+", "?", "{"}:
            raise self._wrong("a repeat follows a repeat")
        return bounds

    def _braces(self) -> tuple[int, int | None]:
        end = self.source.find("}", self.position)
        low, comma, high = self.source[self.position + 1 : end].partition(",")
        if end < 0 or not low.isdecimal() or (high and not high.isdecimal()):
            raise self._wrong("a repeat must be {n}, {n,} or {n,m}")
        self.position = end + 1
        most = int(low) if not comma else int(high) if high else None
        if max(int(low), most or 0) > REPEAT_MAX or (most is not None and most < int(low)):
            raise self._wrong(f"a repeat allows at most {REPEAT_MAX}, with the lower bound first")
        return int(low), most

    def _times(self, pieces: Iterator[_Fragment], low: int, high: int | None) -> _Fragment:
        whole = self._nothing()
        for _ in range(low - (high is None)):
            whole = self._append(whole, next(pieces))
        if high is None:
            piece = next(pieces)
            loop = self._state(None, piece.start)
            self._tie(piece, loop)
            return self._append(whole, _Fragment(loop if low == 0 else piece.start, [(loop, 1)]))
        for _ in range(high - low):
            piece = next(pieces)
            maybe = self._state(None, piece.start)
            whole = self._append(whole, _Fragment(maybe, [*piece.ends, (maybe, 1)]))
        return whole

    def _append(self, first: _Fragment, second: _Fragment) -> _Fragment:
        self._tie(first, second.start)
        return _Fragment(first.start, second.ends)

    def _single(self, test: Test) -> _Fragment:
        state = self._state(test)
        return _Fragment(state, [(state, 0)])

    def _atom(self) -> _Fragment:
        char = self._next()
        if char == "(":
            return self._group()
        if char == "[":
            return self._single(self._char_class())
        if char == ".":
            return self._single(lambda _char: True)
        if char in "^$":
            anchor = self._nothing()
            self.anchors[anchor.start] = char
            return anchor
        if char == "\\":
            return self._single(self._escape())
        if char in "*+?{":
            raise self._wrong(f"{char} has no meaning here")
        return self._single(self._folded(_equals(char)))

    def _group(self) -> _Fragment:
        if self._peek() == "?":
            self._group_kind()
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self._wrong(f"groups are nested more than {DEPTH_MAX} deep")
        piece = self._alternatives()
        if self._next() != ")":
            raise self._wrong("unmatched (")
        self.depth -= 1
        return piece

    def _group_kind(self) -> None:
        found = _GROUP_KIND.match(self.source, self.position)
        if found is None:
            raise self._wrong("after (? only (?:...) and (?P<name>...) are supported, and (?i) at the start")
        self.position = found.end()

    def _folded(self, test: Test) -> Test:
        return (lambda char: test(char) or test(char.swapcase())) if self._folds else test

    def _escape(self) -> Test:
        char = self._next()
        test = _CLASSES.get(char.lower())
        if test is not None:
            return test if char.islower() else _opposite(test)
        if char.isalnum() and char not in _ESCAPES:
            raise self._wrong(f"\\{char} is not supported")
        return self._folded(_equals(_ESCAPES.get(char, char)))

    def _char_class(self) -> Test:
        negated = self._peek() == "^"
        self.position += negated
        tests = [self._class_item()]
        while self._peek() != "]":
            tests.append(self._class_item())
        self.position += 1

        def inside(char: str) -> bool:
            return any(test(char) for test in tests)

        return _opposite(inside) if negated else inside

    def _class_item(self) -> Test:
        low = self._next()
        if low == "\\":
            return self._escape()
        if self._peek() != "-" or self.source[self.position + 1 : self.position + 2] in {"]", ""}:
            return self._folded(_equals(low))
        self.position += 1
        high = self._next()
        if high < low:
            raise self._wrong(f"the range {low}-{high} is empty")
        return self._folded(_between(low, high))


def _equals(wanted: str) -> Test:
    return lambda char: char == wanted


def _between(low: str, high: str) -> Test:
    return lambda char: low <= char <= high


def _opposite(test: Test) -> Test:
    return lambda char: not test(char)
