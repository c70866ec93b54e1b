"""Committed offsets that are notes: pipelines keep text in the metadata of an offset, in groups of their own.

The offset of a note is the number of the note. It is no position in the topic, so it has no lag.
"""

import re

NOTE_GROUPS = "tidemill-"
"""How the names of these groups begin."""
_LEDGER = r"\d+/\d+ .*"
"""A piece of the ledger of a topic sink, such as `0/1 done query=...`."""
_POSITIONS = r"\d+=\d+(?: \d+=\d+)*"
"""Positions of a replay, such as `0=120 1=77`."""
_NOTE = re.compile(f"{_LEDGER}|{_POSITIONS}", re.DOTALL)


def is_note(group: str, metadata: str) -> bool:
    """Whether a committed offset of a group, with this metadata, is a note."""
    return group.startswith(NOTE_GROUPS) and _NOTE.fullmatch(metadata) is not None
