"""Parses file locations: a path of a local file system, or `file:` with an absolute path.

Every location from a user must go through `local_path`. An unsupported scheme is rejected. The operating system would
treat `s3://bucket/x` as a folder named `s3:`, and the command would report success.
"""

import re
from urllib.parse import unquote

from tidemill.model.errors import TidemillError

SUPPORTED = "a local path, or file:///path"
_PLAIN = ("/", "./", "../")
"""Prefixes that mark a path, whatever characters follow."""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_FILE = re.compile(r"file:(?://(?:localhost)?(?=/)|(?=/(?!/)))", re.IGNORECASE)


class UnsupportedLocation(TidemillError):
    """The location is not on a local file system."""


def local_path(text: str) -> str:
    """Return the path of a location. UnsupportedLocation lists the supported forms in one line."""
    if not text.strip() or "\0" in text:
        raise UnsupportedLocation(f"{text!r} is not a path; write {SUPPORTED}")
    if text.startswith(_PLAIN) or text in {".", ".."}:
        return text
    begin = text.lstrip()
    if begin.startswith(("~", "$")):
        raise UnsupportedLocation(f"{text!r} has a {begin[0]} that was not expanded; write {SUPPORTED}")
    if found := _FILE.match(begin):
        return _absolute(text, begin[found.end() :])
    scheme = _SCHEME.match(begin)
    if scheme is None and "://" not in begin:
        return text
    if scheme is not None and len(scheme[1]) == 1:
        raise UnsupportedLocation(f"{text!r} names a Windows drive; write {SUPPORTED}")
    kind = begin.partition(":")[0].lower()
    if kind == "file":
        raise UnsupportedLocation(f"{text!r} is not absolute, or on another host; write {SUPPORTED}")
    raise UnsupportedLocation(
        f"{text!r} has the scheme {kind}:, which is not supported; write {SUPPORTED}, "
        f"or ./{begin} for a folder of that name"
    )


def _absolute(text: str, path: str) -> str:
    """Return the path of a file URL, with escapes resolved and without a query."""
    plain = unquote(path, errors="surrogateescape") if "?" not in path and "#" not in path else "\0"
    if "\0" in plain:
        raise UnsupportedLocation(f"{text!r} is not the URL of a file; write {SUPPORTED}")
    return "/" + plain.lstrip("/")
