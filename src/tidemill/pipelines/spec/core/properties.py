"""Parses Java properties files, the format that Kafka's own tools take as `--command-config`."""

import re
from collections.abc import Iterator

from tidemill.pipelines.errors import WrongOption

COMMENTS = ("#", "!")
_END = re.compile(r"\r\n|\n|\r")
_PARTS = re.compile(r"((?:\\.|[^=:\s\\])+)\s*(?:[=:]|(?<=\s))\s*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Every name with its value. The last value of a name counts."""
    found = {}
    for number, line in _lines(text):
        parts = _PARTS.fullmatch(line)
        if parts is None:
            raise WrongOption(f"line {number} is not name=value")
        found[_plain(parts[1])] = _plain(parts[2])
    return found


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Each line with its number. A line that ends with a backslash continues in the next, whose indentation is ignored.

    A comment never continues.
    """
    begun, kept = 0, ""
    for number, raw in enumerate(_END.split(text), 1):
        line = raw.lstrip()
        if not kept and (not line or line.startswith(COMMENTS)):
            continue
        begun = begun if kept else number
        slashes = len(line) - len(line.rstrip("\\"))
        if slashes % 2:
            kept += line[:-1]
            continue
        yield begun, kept + line
        kept = ""
    if kept:
        yield begun, kept


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda found: _character(found[1]), text)


def _character(escaped: str) -> str:
    if len(escaped) > 1:
        return chr(int(escaped[1:], 16))
    return _CONTROLS.get(escaped, escaped)
