"""Compares what a command prints with what the JSON API sends."""

from collections.abc import Collection
from typing import Any

AGES, APART_S = ("lag_s",), 60.0
"""These grow between two requests, by less than this."""


def differences(printed: Any, sent: Any, unknown: Collection[str] = (), path: str = "") -> list[str]:
    """The places where a printed document differs from a sent one. `unknown` fields must be null in the printed one."""
    name = path.rpartition(".")[2]
    if name in unknown:
        return [] if printed is None else [f"{path} is {printed!r}, but the command cannot know it"]
    if isinstance(printed, dict) and isinstance(sent, dict):
        wrong = [f"{path}.{each} is only in one" for each in printed.keys() ^ sent.keys()]
        for each in printed.keys() & sent.keys():
            wrong += differences(printed[each], sent[each], unknown, f"{path}.{each}")
        return wrong
    if isinstance(printed, list) and isinstance(sent, list) and len(printed) == len(sent):
        pairs = zip(printed, sent, strict=True)
        return [each for one, other in pairs for each in differences(one, other, unknown, path)]
    if name in AGES and isinstance(printed, float) and isinstance(sent, float):
        return [] if abs(printed - sent) < APART_S else [f"{path}: {printed} and {sent}"]
    return [] if printed == sent else [f"{path}: {printed!r} and {sent!r}"]
