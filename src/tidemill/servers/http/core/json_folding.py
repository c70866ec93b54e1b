"""Folds formatted JSON: which lines of it are inside an object or a list, by the brackets at the ends of lines.

It works on the text, so numbers are shown as they were written, whatever their size.
"""

from dataclasses import dataclass, field

FOLDED_LINES_MAX = 2_000
"""A longer text is not folded."""
FOLDED_DEPTH_MAX = 30
"""Parts that are deeper stay lines of the part around them."""


@dataclass(slots=True)
class JsonPart:
    """One line, or an object or list: its first line, what is inside, and its last line."""

    text: str
    inside: list["JsonPart"] = field(default_factory=list)
    end: str = ""

    @property
    def lines(self) -> int:
        """The lines of the text that it has."""
        return 1 + sum(each.lines for each in self.inside) + bool(self.end)


def folded_json(text: str) -> list[JsonPart] | None:
    """The parts of a text with one value on each line; None if it has one line, or too many."""
    lines = text.split("\n")
    if not 1 < len(lines) <= FOLDED_LINES_MAX:
        return None
    whole: list[JsonPart] = []
    open_parts: list[JsonPart] = []
    too_deep = 0
    for line in lines:
        # A text has no raw line break in JSON, so a bracket at the end of a line opens a part, and one at its start
        # closes it. An empty object or list is on one line.
        if line.lstrip()[:1] in {"}", "]"} and open_parts:
            if too_deep:
                too_deep -= 1
            else:
                open_parts.pop().end = line
                continue
        part = JsonPart(line)
        (open_parts[-1].inside if open_parts else whole).append(part)
        if line[-1:] in {"{", "["}:
            if len(open_parts) < FOLDED_DEPTH_MAX:
                open_parts.append(part)
            else:
                too_deep += 1
    return whole
