"""Searches text for a pattern in linear time, whatever the pattern and the text are.

The machine of `groups/core/patterns` has a set of states after each character. The sets, and the moves between them,
are computed when they are first needed and kept, so most characters cost one lookup. The table is bounded: when it is
full it starts again, as in RE2.
"""

from tidemill.groups.core.patterns import PatternMachine
from tidemill.model.errors import InvalidRegularExpression

STATES_MAX = 300
SETS_MAX = 1_000
MOVES_MAX = 20_000
TEXT_CHARS_MAX = 16 * 1024
"""A pattern is searched for in the beginning of a longer text."""


class TextSearch:
    """A compiled pattern that is searched for anywhere in a text."""

    def __init__(self, source: str) -> None:
        self._machine = PatternMachine(source)
        self._start = self._machine.compile()
        if len(self._machine.tests) > STATES_MAX:
            raise InvalidRegularExpression(f"pattern {source[:100]!r} is too large; shorten it, or its repeats")
        self._later = frozenset(self._machine.reach([self._start], begins=False, ends=False))
        self._forget()

    def finds(self, text: str) -> bool:
        """Whether a part of the text matches."""
        at = self._first
        moves, accepts = self._moves, self._accepts
        if accepts[at]:
            return True
        for char in text[:TEXT_CHARS_MAX]:
            following = moves[at].get(char)
            if following is None:
                following = self._move(at, char)
                moves, accepts = self._moves, self._accepts
            if accepts[following]:
                return True
            at = following
        ends = self._machine.reach(list(self._sets[at]), begins=not text, ends=len(text) <= TEXT_CHARS_MAX)
        return self._machine.accept in ends

    def _forget(self) -> None:
        self._numbers: dict[frozenset[int], int] = {}
        self._sets: list[frozenset[int]] = []
        self._moves: list[dict[str, int]] = []
        self._accepts: list[bool] = []
        self._count = 0
        self._first = self._number(frozenset(self._machine.reach([self._start], begins=True, ends=False)))

    def _number(self, states: frozenset[int]) -> int:
        known = self._numbers.get(states)
        if known is None:
            known = self._numbers[states] = len(self._sets)
            self._sets.append(states)
            self._moves.append({})
            self._accepts.append(self._machine.accept in states)
        return known

    def _move(self, at: int, char: str) -> int:
        states = self._sets[at]
        if self._count >= MOVES_MAX or len(self._sets) >= SETS_MAX:
            self._forget()
            at = self._number(states)
        exits, tests = self._machine.exits, self._machine.tests
        moved = [exits[state][0] for state in states if (test := tests[state]) is not None and test(char)]
        reached = self._later.union(self._machine.reach(moved, begins=False, ends=False))
        found = self._moves[at][char] = self._number(reached)
        self._count += 1
        return found
