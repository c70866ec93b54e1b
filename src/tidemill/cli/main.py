"""`tidemill`: finds the command, loads only that one, and turns every failure into one line.

`COMMANDS` is the list of commands. A row names the module and attribute that serve it (a typer app, or a plain function
with typer annotations) and its line in the help; nothing is imported before it is asked for, so `tidemill --help` is
quick however many commands there are.

Exit codes: 0 fine, 1 failed, 2 wrong use. What goes wrong is told on standard error in one line that says what to do.
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
    """Where a command is, and what it is for."""

    target: str
    summary: str


COMMANDS = {
    "demo": Command("tidemill.cli.demo.run:demo", "See it all at work: broker, orders, reminders, Spark."),
    "serve": Command("tidemill.cli.serve:serve", "Run a broker."),
    "topic": Command("tidemill.cli.topic:app", "Create, list, describe, alter and delete topics."),
    "produce": Command("tidemill.cli.produce:produce", "Write records to a topic."),
    "consume": Command("tidemill.cli.consume:consume", "Print the records of a topic."),
    "group": Command("tidemill.cli.group:app", "List, describe, reset and delete consumer groups."),
    "timeline": Command("tidemill.cli.timeline:app", "Messages delivered at their due time, under a lease."),
    "schedule": Command("tidemill.cli.schedule:schedule", "Put a message on a timeline for later."),
    "cluster": Command("tidemill.cli.cluster:app", "Run several brokers, see how they are, even out their load."),
    "pipeline": Command("tidemill.cli.pipeline:app", "Run pipelines on Spark; archive topics and replay them."),
    "sql": Command("tidemill.cli.sql:sql", "Ask about records, groups, lag and timers in SQL."),
    "bench": Command("tidemill.cli.bench:bench", "Measure a broker: writing, reading, latency."),
    "doctor": Command("tidemill.cli.doctor:doctor", "Check that this machine can run a broker."),
    "repair": Command("tidemill.cli.repair:repair", "Restore a damaged data directory of a stopped broker."),
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
"""What the parser of the command line calls a kind of value (some versions write "integer"), and what people do."""
FRAMED_COLUMNS = 80
"""In a terminal that is narrower, frames would cut the names of flags: it gets its help without."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the answer is the exit code."""
    _speak_as_the_terminal_can()
    try:
        code = _answer(list(map(_read, sys.argv[1:] if arguments is None else arguments)))
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_what_is_unsaid()
        return FAILED
    except OSError as error:
        _forget_what_is_unsaid()
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
    if (strange := next(filter(_is_no_text, words), None)) is not None:
        told = repr(os.fsencode(strange))[1:]
        return _fail(f"{told} is not UTF-8; bytes that are no text come in from a file or standard input", WRONG_USE)
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
        message = _in_plain_words(format_message().rstrip("."))
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


def _speak_as_the_terminal_can() -> None:
    """Where the locale has no Unicode, what it cannot write is written as an escape.

    A stream that the shell has closed (`>&-`) is none: what is said there goes nowhere, and nothing comes from there.
    """
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115 -- as long as the program runs
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and (stream.encoding or "").lower() != "utf-8":
            stream.reconfigure(errors="backslashreplace")


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 -- as long as the program runs


def _forget_what_is_unsaid() -> None:
    """What nobody could be told, Python must not try to tell again when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError):
            os.dup2(_nowhere().fileno(), sys.stdout.fileno())


def _read(word: str) -> str:
    """A word that the locale could not read may be UTF-8 all the same."""
    try:
        return os.fsencode(word).decode() if _is_no_text(word) else word
    except UnicodeDecodeError:
        return word


def _is_no_text(word: str) -> bool:
    """Whether the shell gave us bytes that are no text: clients of brokers cannot take them, and some break."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return True
    return False


def _in_plain_words(message: str) -> str:
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

tidemill COMMAND --help tells more; tidemill --version names the version;
tidemill --install-completion teaches your shell to complete all this.
"""
