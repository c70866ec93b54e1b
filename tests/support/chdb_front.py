"""A small ClickHouse server for tests: HTTP in front of chDB, in a process of its own.

`python tests/support/chdb_front.py FOLDER` prints its port and serves until its standard input ends. It runs one
statement at a time.
"""

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

TOKEN = "insert_deduplication_token"


@contextmanager
def running_front(folder: Path) -> Iterator[int]:
    """Run a server that stores its tables in a folder; yields its port."""
    command = [sys.executable, __file__, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as front:
        assert front.stdout is not None
        try:
            yield int(front.stdout.readline())
        finally:
            front.kill()  # its tables are not needed any more, and the engine may end slowly


class Front(BaseHTTPRequestHandler):
    session: Any

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        self._serve(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _serve(self, body: bytes) -> None:
        given = dict(parse_qsl(urlsplit(self.path).query))
        query = given.get("query") or body.decode()
        status, answer = 200, b""
        try:
            answer = self._insert(query, body, given) if "query" in given and body else self._ask(query)
        except Exception as error:  # noqa: BLE001 - every error is returned to the client
            status, answer = 500, str(error).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.send_header("X-ClickHouse-Format", "Native")
        if status != 200:
            self.send_header("X-ClickHouse-Exception-Code", "1")
        self.end_headers()
        self.wfile.write(answer)

    def _ask(self, query: str) -> bytes:
        return bytes(self.session.query(query, "TabSeparated").bytes() or b"")

    def _insert(self, query: str, body: bytes, given: dict[str, str]) -> bytes:
        """Insert through a file, because chDB does not accept data next to a statement."""
        with tempfile.NamedTemporaryFile(suffix=".arrow") as file:
            file.write(body)
            file.flush()
            into, _, kind = query.partition(" FORMAT ")
            token = f"SETTINGS {TOKEN}='{given[TOKEN]}'" if TOKEN in given else ""
            return self._ask(f"{into} {token} SELECT * FROM file('{file.name}', {kind.split()[0]})")

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    from chdb.session import Session

    Front.session = Session(sys.argv[1])
    server = HTTPServer(("127.0.0.1", 0), Front)
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
