"""ClickHouse's HTTP interface over the embedded engine: a test server that supports what clickhouse-connect uses.

`python -m tests.support.clickhouse_front FOLDER PORT [USER:PASSWORD [CERTIFICATE KEY]]` prints its port. It serves
queries, inserts, settings and errors until it is killed. `tests/support/clickhouse.py` starts it. With the environment
variable KEEPER it is one of several replicas (`keeper_emulation.py`).

`POST /fault?...` injects faults. `lose=N` executes the next N inserts and closes the connection instead of answering.
`refuse=CODE` refuses every insert with that code (0 ends it). `sleep=SECONDS` waits before every insert. `hold=1`
delays incoming records until `hold=0`, while other requests are served. `cut=1` closes the connections of brokers
without an answer; other replicas still reach it. `behind=1` lets a replica apply nothing that others have stored.
"""

import os
import re
import ssl
import sys
import tempfile
import time
from base64 import b64encode
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

from tests.support.keeper_emulation import Change, KeeperEmulation, local_statement

TRANSPORT = {
    "test",
    "database",
    "query",
    "query_id",
    "session_id",
    "wait_end_of_query",
    "client_protocol_version",
    "compress",
}
_FORMAT = re.compile(r"\bFORMAT\s+(\w+)\s*;?\s*$", re.IGNORECASE)
_CODE = re.compile(r"Code: (\d+)")


class Front(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine: ClassVar[Any]
    turn: ClassVar[Lock] = Lock()
    faults: ClassVar[dict[str, float]] = {}
    login: ClassVar[str] = ""
    keeper: ClassVar["KeeperEmulation | None"] = None

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        self._serve(self._body())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Log nothing."""

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _serve(self, body: bytes) -> None:
        parts = urlsplit(self.path)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        if parts.path == "/fault":
            self.faults.update({name: float(value) for name, value in options.items()})
            self._answer(b"")
        elif parts.path == "/replicate" and self.keeper is not None:
            with self.turn:
                self._answer(b"%d" % self.keeper.catch_up(self.apply, is_behind=self.faults.get("behind", 0) > 0))
        elif self.faults.get("cut", 0) and options.get("test") != "1":
            self.close_connection = True
            self.connection.close()
        elif parts.path == "/ping":
            self._answer(b"Ok.\n")
        elif self.login and self.headers.get("Authorization") != f"Basic {b64encode(self.login.encode()).decode()}":
            self._refuse("Code: 516. DB::Exception: password is incorrect, or there is no user with such name", 403)
        else:
            try:
                self._run(options, body)
            except RuntimeError as error:
                self._refuse(str(error))

    def _run(self, options: dict[str, str], body: bytes) -> None:
        settings = {k: v for k, v in options.items() if k not in TRANSPORT and not k.startswith("param_")}
        parameters = {k.removeprefix("param_"): v for k, v in options.items() if k.startswith("param_")}
        sql = options.get("query", "")
        head, _, rest = body.partition(b"\n")
        if not sql and head.upper().startswith(b"INSERT INTO") and _FORMAT.search(head.decode()):
            sql, body = head.decode(), rest
        inserts = sql.upper().startswith("INSERT INTO") and _FORMAT.search(sql) is not None
        while inserts and "messages_incoming" in sql and self.faults.get("hold", 0):
            time.sleep(0.02)
        if self.keeper is not None and self._run_replicated(sql or body.decode(), body, options, settings):
            return
        with self.turn:
            self._use(options.get("database") or "default")
            if inserts:
                self._insert(sql, body, settings)
                return
            sql = sql or body.decode()
            if self.keeper is not None:
                sql = self.keeper.with_system_tables(sql)
            found = _FORMAT.search(sql)
            if found is None and sql.lstrip().upper().startswith(("SELECT", "SHOW")):
                sql += " FORMAT TabSeparated"
            for name, value in settings.items():
                self.engine.query(f"SET {name} = '{value}'", "TabSeparated")
            done = self.engine.query(sql, found.group(1) if found else "TabSeparated", params=parameters)
        selects = sql.lstrip().upper().startswith(("SELECT", "SHOW"))
        self._answer(done.bytes() or b"", {"X-ClickHouse-Format": "TabSeparated"} if selects else {})

    def _run_replicated(self, sql: str, body: bytes, options: dict[str, str], settings: dict[str, str]) -> bool:
        """Run a statement that concerns the replicas; False if it does not."""
        assert self.keeper is not None
        if sql.lstrip().upper().startswith("SYSTEM"):
            if sql.startswith("SYSTEM SYNC"):
                with self.turn:
                    self.keeper.catch_up(self.apply, is_behind=self.faults.get("behind", 0) > 0)
            self.keeper.run_system(sql)
            self._answer(b"")
            return True
        if sql.lstrip().upper().startswith(("SELECT", "SHOW", "KILL", "SET", "USE", "EXPLAIN")):
            return False
        change = Change(sql, body, settings, options.get("database") or "default")
        with self.keeper.commit():
            self._check_faults()
            self.keeper.check_writable(sql)
            with self.turn:
                self.apply(change)
                self.keeper.append(change)
            self.keeper.replicate()
        self._finish_insert(sql)
        return True

    @classmethod
    def apply(cls, change: "Change") -> None:
        cls.engine.query(f"USE `{change.database}`", "TabSeparated")
        sql = local_statement(change.sql)
        if sql.upper().startswith("INSERT INTO") and _FORMAT.search(sql):
            cls.insert(sql, change.data, change.settings)
        else:
            cls.engine.query(sql, "TabSeparated")

    def _insert(self, sql: str, data: bytes, settings: dict[str, str]) -> None:
        self._check_faults()
        self.insert(sql, data, settings)
        self._finish_insert(sql)

    def _check_faults(self) -> None:
        time.sleep(self.faults.get("sleep", 0))
        if code := int(self.faults.get("refuse", 0)):
            raise RuntimeError(f"Code: {code}. DB::Exception: refused by the test")

    @classmethod
    def insert(cls, sql: str, data: bytes, settings: dict[str, str]) -> None:
        before, kind = _FORMAT.sub("", sql), _FORMAT.search(sql)
        assert kind is not None
        clause = ", ".join(f"{name} = '{value}'" for name, value in settings.items())
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            infile = f"{before} FROM INFILE '{file.name}' SETTINGS {clause} FORMAT {kind.group(1)}"
            cls.engine.query(infile, "TabSeparated")

    def _finish_insert(self, sql: str) -> None:
        if sql.upper().startswith("INSERT INTO") and _FORMAT.search(sql) and self.faults.get("lose", 0) > 0:
            self.faults["lose"] -= 1
            self.close_connection = True
            self.connection.close()
            return
        self._answer(b"")

    def _use(self, database: str) -> None:
        self.engine.query(f"USE `{database}`", "TabSeparated")

    def _refuse(self, text: str, status: int = 500) -> None:
        found = _CODE.search(text)
        self._answer(text.encode(), {"X-ClickHouse-Exception-Code": found.group(1) if found else "1000"}, status)

    def _answer(self, body: bytes, headers: dict[str, str] | None = None, status: int = 200) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        with suppress(ConnectionError):  # the client was killed
            self.end_headers()
            self.wfile.write(body)


if __name__ == "__main__":
    import chdb

    Front.engine = chdb.connect(sys.argv[1])
    if "KEEPER" in os.environ:
        Front.keeper = KeeperEmulation(Path(os.environ["KEEPER"]), os.environ["REPLICA"])
    Front.login = sys.argv[3] if len(sys.argv) > 3 else ""
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Front)
    if len(sys.argv) > 4:
        secure = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        secure.load_cert_chain(*sys.argv[4:6])
        if len(sys.argv) > 6:
            secure.load_verify_locations(sys.argv[6])
            secure.verify_mode = ssl.CERT_REQUIRED
        server.socket = secure.wrap_socket(server.socket, server_side=True)
    if Front.keeper is not None:
        Front.keeper.join(server.server_port, Front.apply)
    print(server.server_port, flush=True)
    server.serve_forever()
