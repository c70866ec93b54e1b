"""The name of a timeline as clients give it, also under its earlier keyword."""

import warnings


def timeline_name(name: str, topic: str | None) -> str:
    """The name; `topic`, the earlier keyword, still works and warns."""
    if topic is None:
        return name
    warnings.warn("Timeline(topic=...) is deprecated; use Timeline(address, name)", DeprecationWarning, stacklevel=3)
    return topic
