"""The query process: loads the engine, drops its privileges, then answers the broker's requests one at a time.

It is started as `python -I -m tidemill.query_engine.child FD PARENT MEMORY`, with an empty environment. The engine
reads rows by the table function `python`, which finds them by name among the globals of this module. Each is an Arrow
stream whose batches are pulled from the broker while the engine reads.
"""

import contextlib
import os
import re
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from chdb.session import Session

from tidemill.query_engine import confinement
from tidemill.query_engine.frames import CONTROL_BYTES_MAX, FrameKind, PeerClosed, receive, send

ERROR_OUTPUT = 2
ROWS_BYTES_MAX = 1 << 31
TOO_LARGE = 396
"""ClickHouse's error code for a result that is too large."""
_open_session: Any = Session
"""The library has no types."""
_CODE = re.compile(r"Code: (\d+)\.")
_STATEMENTS = {
    "functions": "SELECT name, categories, is_aggregate, alias_to, origin FROM system.functions",
    "combinators": "SELECT name FROM system.aggregate_function_combinators",
    "parse": "SELECT parseQueryToJSON({text:String})",
    "write": "SELECT formatQueryFromJSON({text:String})",
}
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"})
"""The engine reads a parameter as a field of a tab-separated line."""
_WARM_UP = "SELECT count() FROM python(tidemill_warm_up) WHERE NOT ignore(a)"

tidemill_warm_up = pa.table({"a": [1]})


class ResultTooLarge(Exception):
    """The engine counts a constant column once, but it is written to the client once per row."""


class PulledRows:
    """The broker's rows as an Arrow stream for the engine, which may be opened more than once."""

    def __init__(self, broker: "BrokerSide", name: str) -> None:
        self._broker = broker
        self._name = name

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        stream, schema = self._broker.open(self._name)
        batches = self._broker.batches(stream, schema)
        return pa.RecordBatchReader.from_batches(schema, batches).__arrow_c_stream__(requested_schema)


class BrokerSide:
    """The connection to the broker. The engine's threads send one message at a time and wait for its response."""

    def __init__(self, peer: socket.socket) -> None:
        self.peer = peer
        self._turn = threading.Lock()
        self._streams = 0

    def open(self, name: str) -> tuple[int, pa.Schema]:
        """Open a new stream over rows. Return its number and its schema."""
        with self._turn:
            self._streams += 1
            stream = self._streams
            send(self.peer, FrameKind.OPEN, {"name": name, "stream": stream})
            found = receive(self.peer, ROWS_BYTES_MAX)
        return stream, pa.ipc.read_schema(pa.py_buffer(found.payload))

    def batches(self, stream: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a stream."""
        while True:
            with self._turn:
                send(self.peer, FrameKind.PULL, {"stream": stream})
                found = receive(self.peer, ROWS_BYTES_MAX)
            if found.kind is FrameKind.END:
                return
            if found.kind is not FrameKind.ROWS:
                raise OSError("the broker could not read the rows; it reports the reason")
            yield pa.ipc.read_record_batch(pa.py_buffer(found.payload), schema)


class QueryEngine:
    """The embedded ClickHouse with the settings of one broker."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._held = _open_session(path)
        self._session = _open_session(path)
        self._settings: Mapping[str, Any] = {}
        self._held.query(_WARM_UP)
        self.ask("parse", "SELECT 1")

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Set limits. The setting `readonly` must be the last one."""
        self._settings = settings
        for name, value in settings.items():
            self._session.query(f"SET {name} = {value!r}")

    def ask(self, what: str, text: str = "") -> bytes:
        """Run one of our own statements. The text is a parameter and is not executed."""
        form = "JSON" if what == "functions" else "TabSeparatedRaw"
        found: bytes = self._held.query(_STATEMENTS[what], form, params={"text": text.translate(_ESCAPES)}).bytes()
        return found

    def run(self, sql: str, form: str, bytes_max: int, settings: Mapping[str, int]) -> bytes:
        """Return the result of a query, with some settings of its own."""
        try:
            for name, value in settings.items():
                self._session.query(f"SET {name} = {value:d}")
            found: bytes = self._session.query(sql, form).bytes()
        except Exception:
            # The partial output of a failed query would be the start of the next result of its session.
            self._session.close()
            self._session = _open_session(self._path)
            self.configure(self._settings)
            raise
        for name in settings:
            self._session.query(f"SET {name} = DEFAULT")
        if len(found) > bytes_max:
            raise ResultTooLarge
        return found


def serve(broker: BrokerSide, engine: QueryEngine) -> None:
    """Answer requests until the broker closes its end."""
    while True:
        request = receive(broker.peer, CONTROL_BYTES_MAX).document()
        try:
            found = answer(broker, engine, request)
        except ResultTooLarge:
            send(broker.peer, FrameKind.ERROR, {"code": TOO_LARGE, "text": ""})
        except PeerClosed:
            raise
        except Exception as error:  # noqa: BLE001 - the engine's errors have no common type
            code = _CODE.search(str(error))
            send(broker.peer, FrameKind.ERROR, {"code": int(code[1]) if code else 0, "text": str(error)})
        else:
            send(broker.peer, FrameKind.RESULT, found)


def answer(broker: BrokerSide, engine: QueryEngine, request: Any) -> bytes:
    """Return the result of one request."""
    if request["what"] == "configure":
        engine.configure(request["settings"])
        return b""
    if request["what"] != "run":
        return engine.ask(request["what"], request.get("text", ""))
    rows = {name: PulledRows(broker, name) for name in request["rows"]}
    globals().update(rows)
    try:
        return engine.run(request["sql"], request["form"], request["bytes_max"], request["settings"])
    finally:
        for name in rows:
            del globals()[name]


def _leave_error_output(nowhere: int) -> None:
    """Redirect standard error to `nowhere`. The broker reads it only until this process is ready."""
    sys.stderr.flush()
    os.close(ERROR_OUTPUT)
    if os.dup(nowhere) != ERROR_OUTPUT:  # the lowest free number; the filter does not allow dup2
        os._exit(1)


def main(descriptor: int, parent_id: int, memory_bytes: int) -> None:
    """Load, confine, serve."""
    peer = socket.socket(fileno=descriptor)
    protections = confinement.prepare(parent_id)
    folder = tempfile.mkdtemp(prefix="tidemill-sql-")
    os.chdir(folder)
    try:
        engine = QueryEngine(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    protections += confinement.confine(memory_bytes, parent_id)
    _leave_error_output(nowhere)
    send(peer, FrameKind.READY, {"protections": protections})
    with contextlib.suppress(PeerClosed):
        serve(BrokerSide(peer), engine)
    os._exit(0)  # threads of the engine may be stuck


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
