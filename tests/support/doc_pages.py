"""Reads pages of the documentation as programs: their blocks in order, the commands, and the expected output.

In a `console` block, a line that begins with `$` is a command. The lines after it are its output, to standard output
and standard error. A line of three dots stands for any lines, and three dots inside a line for any text. Times, ids,
numbers with a decimal point and the width of columns are not compared.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
ANYTHING = "..."
SPARK_PAGES = {"docs/guides/pipelines.md", "docs/start/first-pipeline.md"}
"""Pages whose commands need Spark: tests/integration/spark/test_pages.py runs them on the shared session."""
CLUSTER_PAGES = {"docs/guides/cluster.md", "docs/guides/replicated-timelines.md"}
"""Pages whose commands need several brokers: tests/integration/cluster/test_pages.py runs them."""
TABLE_PAGES = {"docs/guides/clickhouse.md"}
"""Pages whose commands need ClickHouse servers: tests/integration/test_clickhouse_servers.py runs them."""
SECURITY_PAGES = {"docs/guides/security.md"}
"""Pages that start brokers themselves: tests/integration/test_docs_security.py runs them."""
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
_HOME = re.compile(
    r"https://(?:github\.com/tidemill/tidemill/(?:blob|tree)|raw\.githubusercontent\.com/tidemill/tidemill)/main/"
)
"""The URL prefix of project files. Pages use it because they are also read on a package index and on the site."""
_VARIABLE_PARTS = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "DATE TIME"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)"), "TIME"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "ID"),
    (re.compile(r"\b\d+\.\d+\b"), "NUMBER"),
    (re.compile(r"\s+"), " "),
)


class Block(NamedTuple):
    """A fenced block of a page."""

    kind: str
    text: str


class Command(NamedTuple):
    """A command of a console block and its output lines."""

    line: str
    printed: list[str]


def pages() -> list[Path]:
    """Every page whose blocks are run."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(page for page in found if "decisions" not in page.parts)


def without_spark() -> list[Path]:
    """Every page that needs one broker and no Spark."""
    elsewhere = SPARK_PAGES | CLUSTER_PAGES | TABLE_PAGES | SECURITY_PAGES
    return [page for page in pages() if str(page.relative_to(ROOT)) not in elsewhere]


def followed_pages() -> list[Path]:
    """The front page, the start pages and the guides, in the order of the site's navigation."""
    listed = re.findall(r"(?:start|guides)/[\w-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    return [ROOT / "README.md", *(ROOT / "docs" / name for name in listed)]


def names(paths: Sequence[Path]) -> list[str]:
    """Their paths in the project."""
    return [str(path.relative_to(ROOT)) for path in paths]


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return [Block(match[1], match[2]) for match in _FENCE.finditer(page.read_text(encoding="utf-8"))]


def links(page: Path) -> list[Path]:
    """The files of the project that a page links to."""
    targets = _LINK.findall(page.read_text(encoding="utf-8"))
    inside = [page.parent / target for target in targets if "://" not in target]
    return inside + [ROOT / _HOME.sub("", target) for target in targets if _HOME.match(target)]


def relative_links(page: Path) -> list[str]:
    """Links that work only inside a checkout."""
    return [target for target in _LINK.findall(page.read_text(encoding="utf-8")) if "://" not in target]


def commands(block: Block) -> Iterator[Command]:
    """The commands of a console block."""
    line: str | None = None
    printed: list[str] = []
    for text in block.text.splitlines():
        if line is not None and line.endswith("\\") and not printed:
            line = f"{line}\n{text}"
        elif text.startswith("$ "):
            if line is not None:
                yield Command(line, printed)
            line, printed = text[2:], []
        else:
            printed.append(text)
    if line is not None:
        yield Command(line, printed)


def same(shown: str, printed: str) -> bool:
    """Whether a printed line matches the page."""
    pattern = ".*".join(re.escape(_plain(part)) for part in shown.split(ANYTHING))
    return re.fullmatch(pattern, _plain(printed)) is not None


def _plain(text: str) -> str:
    for pattern, word in _VARIABLE_PARTS:
        text = pattern.sub(word, text)
    return text


def difference(shown: Sequence[str], out: Sequence[str], err: Sequence[str]) -> str | None:
    """The first difference, or None. The page shows the lines of both streams, each in its own order."""
    streams = [list(out), list(err)]
    skipping = False
    for line in shown:
        if line.strip() == ANYTHING:
            skipping = True
            continue
        if skipping:
            streams = [_from(stream, line) for stream in streams]
            skipping = False
        stream = next((stream for stream in streams if stream and same(line, stream[0])), None)
        if stream is None:
            return f"the page shows {line!r}; next come {streams[0][:1]} and {streams[1][:1]}"
        stream.pop(0)
    left = [line for stream in streams for line in stream]
    return f"the page does not show {left}" if left and not skipping else None


def _from(stream: list[str], line: str) -> list[str]:
    """The stream from the first matching line on; the whole stream when none matches."""
    index = next((index for index, each in enumerate(stream) if same(line, each)), None)
    return stream if index is None else stream[index:]
