"""The journal of local coordination: two files with the same lines, `coordination.journal` and `coordination.copy`.

A line is one change: the CRC-32 of the rest in hexadecimal, a space, a JSON list of revision, key and value. A change
is acknowledged after its line is flushed in both files, and the next change is written after that. So a crash leaves at
most the last line of either file torn or missing. The copy distinguishes a torn last line, which was never
acknowledged, from acknowledged lines that were lost:

- One change that only the copy has is restored from it.
- More than one missing change, or a damaged line before the last one, stops the start (`JournalDamaged`).
  `tidemill repair` merges the intact lines of both files.

A data directory of an older version has no copy; the first start writes it. A full disk does not stop a start. The copy
is then updated before the next change is acknowledged.
"""

import json
import os
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import structlog

from tidemill.cluster.interface import Changed
from tidemill.durable_files import replace_file, sync
from tidemill.model.errors import KafkaStorageError

JOURNAL = "coordination.journal"
COPY = "coordination.copy"
RESTORED_MAX = 1
"""The most changes that a crash can leave in only one of the files."""
CLOSED = -1
FILE_MODE = 0o600
"""The journal has the credentials of users and the secret of the cluster."""

log = structlog.get_logger("tidemill.cluster")


class JournalDamaged(KafkaStorageError):
    """Acknowledged changes are missing from the journal."""


class JournalFull(Exception):
    """The disk is full; the files are as they were before the write."""


class JournalLines(NamedTuple):
    """The lines of one file."""

    changes: tuple[Changed, ...]
    """The intact lines before the first damaged one."""
    good_bytes: int
    size_bytes: int
    later: tuple[Changed, ...] = ()
    """Intact lines behind a damaged one."""
    damaged: bool = False
    """Whether a line before the last one is damaged."""

    @property
    def last_revision(self) -> int:
        """The revision of the last intact line before any damage."""
        return self.changes[-1].revision if self.changes else 0


def encode_line(change: Changed) -> bytes:
    """Encode a change as a line."""
    value = None if change.value is None else change.value.decode("utf-8", "surrogateescape")
    body = json.dumps([change.revision, change.key, value], separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(body), body)


def decode_line(line: bytes) -> Changed | None:
    """Decode a line; None when the line is torn or damaged."""
    crc, _, body = line.rstrip(b"\n").partition(b" ")
    if not line.endswith(b"\n") or crc != b"%08x" % zlib.crc32(body):
        return None
    revision, key, value = json.loads(body)
    return Changed(key, None if value is None else value.encode("utf-8", "surrogateescape"), revision)


def read_lines(text: bytes) -> JournalLines:
    """Parse the lines of a file."""
    changes: list[Changed] = []
    later: list[Changed] = []
    good_bytes = position = 0
    damaged = broken = False
    for line in BytesIO(text):
        change = decode_line(line)
        position += len(line)
        if change is None:
            broken = True
            damaged = damaged or position < len(text)
        elif broken:
            later.append(change)
        else:
            changes.append(change)
            good_bytes = position
    return JournalLines(tuple(changes), good_bytes, len(text), tuple(later), damaged)


def acknowledged(journal: JournalLines, copy: JournalLines | None, path: Path) -> tuple[Changed, ...]:
    """The acknowledged changes of both files; JournalDamaged when acknowledged changes are missing."""
    command = f"tidemill repair --data-dir {path.parent}"
    if journal.damaged:
        raise JournalDamaged(
            f"{path} is damaged at byte {journal.good_bytes}, before its end; nothing was changed; "
            f"see what can be restored with: {command}"
        )
    known = journal.last_revision
    missing = [change for change in (copy.changes if copy else ()) if change.revision > known]
    if copy is not None and any(change.revision > known for change in copy.later):
        raise JournalDamaged(
            f"{path} lacks acknowledged changes, and its copy {COPY} is damaged at byte {copy.good_bytes}; "
            f"nothing was changed; see what can be restored with: {command}"
        )
    if len(missing) > RESTORED_MAX:
        raise JournalDamaged(
            f"{path} ends at byte {journal.good_bytes}, {len(missing)} acknowledged changes before its copy {COPY}; "
            f"nothing was changed; see what can be restored with: {command}"
        )
    return (*journal.changes, *missing)


def merged(journal: JournalLines, copy: JournalLines | None) -> tuple[Changed, ...]:
    """Every intact change of either file, in the order of revisions.

    A rewritten file ends with a line of the last revision without a key, which must not hide the change itself.
    """
    found = [*journal.changes, *journal.later, *(copy.changes + copy.later if copy else ())]
    unique = {(change.revision, change.key): change for change in found}
    return tuple(sorted(unique.values(), key=lambda change: change.revision))


def read_file(path: Path) -> JournalLines | None:
    """The lines of a file; None when the file does not exist."""
    try:
        return read_lines(path.read_bytes())
    except FileNotFoundError:
        return None


def write_file(path: Path, changes: Iterable[Changed]) -> None:
    """Replace a file; durable when this returns."""
    replace_file(path, b"".join(map(encode_line, changes)), private=True)


class CoordinationJournal:
    """Both files, open for appending. All methods block."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / JOURNAL
        self._copy_path = directory / COPY
        self._file = CLOSED
        self._copy = CLOSED

    @property
    def is_open(self) -> bool:
        """Whether changes can be appended."""
        return self._file != CLOSED

    def load(self) -> tuple[Changed, ...]:
        """Every acknowledged change; JournalDamaged when some are missing, with the files left as they are."""
        journal = read_file(self.path) or JournalLines((), 0, 0)
        changes = acknowledged(journal, read_file(self._copy_path), self.path)
        restored = len(changes) - len(journal.changes)
        if restored:
            log.warning("coordination_change_restored", file=str(self.path), source=COPY, changes=restored)
        elif journal.good_bytes < journal.size_bytes:
            torn = journal.size_bytes - journal.good_bytes
            log.warning("unacknowledged_coordination_change_dropped", file=str(self.path), bytes=torn)
        return changes

    def open(self, changes: Sequence[Changed], kept: Sequence[Changed] | None = None) -> None:
        """Make both files hold the loaded changes, or the fewer `kept` ones, and open them."""
        if kept is not None:
            # Revisions are kept, so both files are valid even when a crash leaves only the copy rewritten.
            with _log_write_errors("coordination_journal_rewrite_failed"):
                write_file(self._copy_path, kept)
                write_file(self.path, kept)
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, FILE_MODE)
        _keep_private(self._file)
        try:
            self._complete(changes)
        except JournalFull as error:
            raise KafkaStorageError(
                f"{self.path} cannot be completed: {error}; free disk space and start again"
            ) from error
        with _log_write_errors("coordination_copy_write_failed"):
            self._open_copy()
        sync(self.path.parent)

    def append(self, changes: Sequence[Changed]) -> None:
        """Write and flush the changes in both files; JournalFull when neither file was changed."""
        try:
            self._open_copy()
        except OSError as error:
            raise JournalFull(str(error)) from error
        text = b"".join(map(encode_line, changes))
        files = (self._copy, self._file)
        sizes = [os.fstat(file).st_size for file in files]
        try:
            for file, size in zip(files, sizes, strict=True):
                _write(file, text, size)
        except JournalFull:
            for file, size in zip(files, sizes, strict=True):
                os.ftruncate(file, size)
            raise
        for file in files:
            os.fdatasync(file)

    def close(self) -> None:
        """Close both files."""
        for file in (self._file, self._copy):
            if file != CLOSED:
                os.close(file)
        self._file = self._copy = CLOSED

    def _complete(self, changes: Sequence[Changed]) -> None:
        """Truncate a torn last line, and append a line that only the copy had."""
        found = read_lines(self.path.read_bytes())
        missing = [change for change in changes if change.revision > found.last_revision]
        if found.good_bytes == found.size_bytes and not missing:
            return
        os.ftruncate(self._file, found.good_bytes)
        for change in missing:
            _write(self._file, encode_line(change), os.fstat(self._file).st_size)
        os.fsync(self._file)

    def _open_copy(self) -> None:
        """Make the copy equal to the journal, then open it."""
        if self._copy != CLOSED:
            return
        text = self.path.read_bytes()
        if not self._copy_path.exists() or self._copy_path.read_bytes() != text:
            write_file(self._copy_path, read_lines(text).changes)
        self._copy = os.open(self._copy_path, os.O_RDWR | os.O_APPEND)
        _keep_private(self._copy)


class _log_write_errors:  # noqa: N801 -- used as a statement
    """Log a failed write at start instead of raising it, because a broker with a full disk must still serve reads."""

    def __init__(self, event: str) -> None:
        self._event = event

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if not isinstance(error, OSError):
            return False
        log.warning(self._event, error=str(error))
        return True


def _keep_private(file: int) -> None:
    """Take the rights that other users have to a file of an older version."""
    with suppress(PermissionError):
        os.fchmod(file, FILE_MODE)


def _write(file: int, text: bytes, size: int) -> None:
    try:
        reason = f"only {os.write(file, text)} of {len(text)} bytes were written"
    except OSError as error:
        reason = str(error)
    if os.fstat(file).st_size != size + len(text):
        raise JournalFull(reason)
