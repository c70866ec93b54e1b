"""Finds the characters of a text that a page must name, because they are not seen or change how others are seen.

Control characters, characters that turn the direction of text, and spaces other than the usual one can make a text look
like another one. Line breaks and tabs stay as they are.
"""

from typing import NamedTuple

_LAYOUT = "\n\t"


class TextPart(NamedTuple):
    """A part of a text: characters that are shown as they are, or the name of one that is not."""

    text: str
    is_name: bool


def visible_parts(text: str) -> list[TextPart]:
    """The parts of a text in their order."""
    if text.isprintable():
        return [TextPart(text, is_name=False)] if text else []
    parts: list[TextPart] = []
    start = 0
    for at, char in enumerate(text):
        if char.isprintable() or char in _LAYOUT:
            continue
        if start < at:
            parts.append(TextPart(text[start:at], is_name=False))
        parts.append(TextPart(f"U+{ord(char):04X}", is_name=True))
        start = at + 1
    if start < len(text):
        parts.append(TextPart(text[start:], is_name=False))
    return parts
