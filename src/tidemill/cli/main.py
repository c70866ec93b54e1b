"""`tidemill`: finds the command, imports only that one, and turns every failure into one line.

`COMMANDS` is the list of commands. A row has the module and attribute of the command (a typer app, or a plain function
with typer annotations) and its line in the help. A module is imported only when its command runs, so `tidemill --help`
is quick.

Exit codes: 0 success, 1 failed, 2 wrong use. An error is one line on standard error that says what to do.
"""

import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from shutil import get_terminal_size
from typing import TYPE_CHECKING, NamedTuple, TextIO

from tidemill import __version__

if TYPE_CHECKING:
    import typer
    from typer.core import MarkupMode

FINE, FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130
PROGRAM = "tidemill"
COMPLETION_ASKED = "_TIDEMILL_COMPLETE"
COMPLETION_FLAGS = (["--install-completion"], ["--show-completion"])


class Command(NamedTuple):
    """The location of a command, and its summary."""

    target: str
    summary: str


COMMANDS = {
    "demo": Command("tidemill.cli.demo.run:demo", "Run a demo: broker, orders, reminders, Spark."),
    "serve": Command("tidemill.cli.serve:serve", "Run a broker."),
    "topic": Command("tidemill.cli.topic:app", "Create, list, describe, alter and delete topics."),
    "produce": Command("tidemill.cli.produce:produce", "Write records to a topic."),
    "consume": Command("tidemill.cli.consume:consume", "Print the records of a topic."),
    "group": Command("tidemill.cli.group:app", "List, describe, reset and delete consumer groups."),
    "share": Command("tidemill.cli.share:app", "List, describe, configure, reset and delete share groups."),
    "timeline": Command("tidemill.cli.timeline:app", "Schedule messages and deliver them at their due time."),
    "schedule": Command("tidemill.cli.schedule:schedule", "Schedule a message on a timeline."),
    "cluster": Command("tidemill.cli.cluster:app", "Run a cluster, show its status, rebalance it."),
    "quota": Command("tidemill.cli.quota:app", "Limit what users, clients and addresses use."),
    "pipeline": Command("tidemill.cli.pipeline:app", "Run pipelines on Spark; archive topics and replay them."),
    "sql": Command("tidemill.cli.sql:sql", "Query records, groups, lag and timers in SQL."),
    "user": Command("tidemill.cli.user:app", "Add, list and remove users; change passwords."),
    "acl": Command("tidemill.cli.acl:app", "Grant, revoke and list rights."),
    "cert": Command("tidemill.cli.cert:app", "Create certificates for development."),
    "bench": Command("tidemill.cli.bench:bench", "Measure a broker: throughput and latency."),
    "dashboards": Command(
        "tidemill.cli.dashboards:app", "Write dashboards and alert rules for Grafana and Prometheus."
    ),
    "doctor": Command("tidemill.cli.doctor:doctor", "Check that this machine can run a broker."),
    "repair": Command("tidemill.cli.repair:repair", "Repair the data directory of a stopped broker."),
}

HINT = "see tidemill --help"
PLAIN_KINDS = {
    "integer range": "a whole number",
    "integer": "a whole number",
    "int range": "a whole number",
    "int": "a whole number",
    "float range": "a number",
    "float": "a number",
}
"""The parser's names for types (some versions write "integer"), and the words for error messages."""
FRAMED_COLUMNS = 80
"""Below this width the help has no frames, because they would cut the names of flags."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    _prepare_streams()
    try:
        code = _answer(list(map(_read, sys.argv[1:] if arguments is None else arguments)))
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_unwritten_output()
        return FAILED
    except OSError as error:
        _discard_unwritten_output()
        return _fail(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", FAILED)
    return code


def _answer(words: list[str]) -> int:
    if COMPLETION_ASKED in os.environ or words[:1] in COMPLETION_FLAGS:
        from tidemill.cli import completion

        return completion.answer({name: command.target for name, command in COMMANDS.items()}, words)
    if words[:1] == ["help"] and words[1:2] and words[1] in COMMANDS:
        words = [*words[1:], "--help"]
    if not words or words[0] in {"--help", "-h", "help"}:
        sys.stdout.write(_help())
        return FINE if words else WRONG_USE
    if words[0] in {"--version", "-V", "version"}:
        sys.stdout.write(f"{PROGRAM} {__version__}\n")
        return FINE
    if (invalid := next(filter(_is_not_text, words), None)) is not None:
        word = repr(os.fsencode(invalid))[1:]
        return _fail(f"{word} is not UTF-8; pass such bytes in a file or on standard input", WRONG_USE)
    command = COMMANDS.get(words[0])
    if command is None:
        return _fail(_unknown(words[0]), WRONG_USE)
    return _run(words[0], command, words[1:])


def _run(name: str, command: Command, arguments: list[str]) -> int:
    import typer

    from tidemill.model.errors import TidemillError

    try:
        result = typer.main.get_command(_app(command))(
            args=arguments, prog_name=f"{PROGRAM} {name}", standalone_mode=False
        )
    except TidemillError as error:
        return _fail(str(error), getattr(error, "exit_code", FAILED))
    except typer.Abort:
        return _fail("stopped; nothing was changed", FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        format_message = getattr(error, "format_message", None)
        if format_message is None:
            raise
        message = _with_plain_types(format_message().rstrip("."))
        if not message:
            return WRONG_USE
        return _fail(f"{message}{'' if message.endswith('?') else ';'} see {_where(error, name)} --help", WRONG_USE)
    return result if isinstance(result, int) else FINE


def _app(command: Command) -> "typer.Typer":
    import typer

    from tidemill.cli.completion import load

    found = load(command.target)
    framed: MarkupMode = "rich" if get_terminal_size().columns >= FRAMED_COLUMNS else None
    if not isinstance(found, typer.Typer):
        app = typer.Typer(add_completion=False, rich_markup_mode=framed)
        app.command()(found)
        return app
    found.rich_markup_mode = framed
    app = typer.Typer(add_completion=False, no_args_is_help=True, help=command.summary, rich_markup_mode=framed)
    app.add_typer(found)
    return app


def _prepare_streams() -> None:
    """Write characters that the locale cannot encode as escapes.

    A stream that the shell has closed (`>&-`) is replaced by the null device.
    """
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115 -- open until the program ends
    sys.stdout = sys.stdout or _null_stream()
    sys.stderr = sys.stderr or _null_stream()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and (stream.encoding or "").lower() != "utf-8":
            stream.reconfigure(errors="backslashreplace")


def _null_stream() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 -- open until the program ends


def _discard_unwritten_output() -> None:
    """Redirect a broken standard output to the null device, so that Python does not write to it again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError):
            os.dup2(_null_stream().fileno(), sys.stdout.fileno())


def _read(word: str) -> str:
    """Decode a word as UTF-8 that the locale could not decode."""
    try:
        return os.fsencode(word).decode() if _is_not_text(word) else word
    except UnicodeDecodeError:
        return word


def _is_not_text(word: str) -> bool:
    """Whether a word has bytes that are not text. Kafka clients cannot send them, and some crash."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return True
    return False


def _with_plain_types(message: str) -> str:
    for kind, plain in PLAIN_KINDS.items():
        message = message.replace(f"is not a valid {kind}", f"is not {plain}")
    return message


def _where(error: Exception, name: str) -> str:
    context = getattr(error, "ctx", None)
    return context.command_path if context is not None else f"{PROGRAM} {name}"


def _unknown(word: str) -> str:
    near = get_close_matches(word, COMMANDS, n=1)
    hint = f"did you mean {near[0]}? {HINT}" if near else HINT
    return f"there is no command {word[:60]!r}; {hint}"


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"error: {' '.join(message.split())}\n")
    return code


def _help() -> str:
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name.ljust(width)}  {command.summary}" for name, command in COMMANDS.items())
    return f"""Usage: tidemill COMMAND [OPTIONS]

Streams for every Kafka client, timelines, and pipelines on Spark, in one package.

Commands:
{rows}

Start here:
  tidemill serve                               run a broker
  tidemill topic create orders --partitions 3
  tidemill produce orders --message hello
  tidemill consume orders --from-beginning

Later, once:
  tidemill timeline create reminders
  tidemill schedule reminders --in 5s 'tea is ready'
  tidemill timeline work reminders

For the options of a command: tidemill COMMAND --help. For the version: tidemill --version.
For completion in your shell: tidemill --install-completion.
"""
