"""Record `tidemill demo` in a terminal and draw what it printed: `python docs/pictures/make_demo_svg.py`.

The demo runs in a pseudo-terminal for `SECONDS`. The picture has the lines that the demo prints once and the last table
that it drew. Nothing in it is written by hand.
"""

# ruff: noqa: INP001 -- a program next to the picture that it makes

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).with_name("demo.svg")
SECONDS = 180
COLUMNS, LINES = 96, 40
REDRAW = re.compile(r"\r?(?:\x1b\[2K|\x1b\[1A)+")
"""What rich sends before it draws a table again in the same place."""
CURSOR = re.compile(r"\x1b\[\?25[lh]")
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""rich's fonts come from a host of their own; the viewer's monospace font is used instead."""
NOTE = re.compile(r"(kafka|grpc|console|parquet|spark|stopping|orders|revenue|reminders)\b")
"""Lines that the demo prints once; rows of the table are indented."""
END = ("stopping", "orders", "revenue", "reminders")
TITLE_STYLE = "\x1b[3m"
FOLDER = re.compile(r"\S*tidemill-demo-\w+/")


def record(seconds: int) -> str:
    """Everything that the demo writes to its terminal."""
    reading, terminal = pty.openpty()
    program = Path(sys.executable).with_name("tidemill")
    environment = os.environ | {
        "COLUMNS": str(COLUMNS),
        "LINES": str(LINES),
        "TERM": "xterm-256color",
        "PYTHONUTF8": "1",
    }
    demo = subprocess.Popen(  # noqa: S603 -- our own program
        [program, "demo", "--duration", str(seconds)], stdin=terminal, stdout=terminal, stderr=terminal, env=environment
    )
    os.close(terminal)
    written = bytearray()
    while piece := _read(reading):
        written += piece
    os.close(reading)
    if demo.wait():
        raise SystemExit(f"the demo failed with exit code {demo.returncode}:\n{written.decode()}")
    return written.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # Linux reports the end of a pseudo-terminal as an error
        return b""


def screen(written: str) -> str:
    """What a reader sees: the lines that stay, with the last table between them."""
    pieces = [CURSOR.sub("", piece) for piece in REDRAW.split(written)]
    tables = [index for index, piece in enumerate(pieces) if "Ctrl-C stops" in piece and "aggregated" in piece]
    if not tables:
        raise SystemExit("Spark aggregated nothing before the demo ended; set SECONDS higher")
    last = pieces[tables[-1]]
    table = last[last.index(TITLE_STYLE) :].rstrip()
    notes = [line for piece in pieces for line in piece.splitlines() if NOTE.match(line)]
    start = [line for line in notes if not line.startswith(END)]
    end = [line for line in notes if line.startswith(END)]
    return FOLDER.sub("", "\n".join([f"$ tidemill demo --duration {SECONDS}", *start, "", table, "", *end]))


def draw(shown: str) -> str:
    """The picture."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(shown))
    return FONTS.sub("", console.export_svg(title="tidemill demo", unique_id="demo"))


def main() -> None:
    """Write the picture."""
    PICTURE.write_text(draw(screen(record(SECONDS))), encoding="utf-8")


if __name__ == "__main__":
    main()
