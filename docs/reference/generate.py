"""Writes the pages of this folder from the tables that the broker itself uses: `python docs/reference/generate.py`.

A test compares the pages with what this program would write, so that they never tell anything but the truth.
"""

# ruff: noqa: INP001 -- a program beside the pages it makes

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidemill import settings
from tidemill.cli.completion import tree
from tidemill.cli.main import COMMANDS
from tidemill.doors.kafka.server import standard_router
from tidemill.model import broker_settings, errors, timeline_errors, topic_settings
from tidemill.model.topic_settings import INT64_MAX, Setting

FOLDER = Path(__file__).parent
FAMILIES = {errors.TidemillError, errors.KafkaError, timeline_errors.TimelineError}
MADE = "<!-- Made by `python docs/reference/generate.py`; change the tables in the source, not this page. -->"


def settings_page() -> str:
    """Every setting of a node, of a broker and of a topic."""
    node = [(f"`--{row.name}`", f"`{row.variable}`", _code(row.default), row.doc) for row in settings.ROWS]
    return _page(
        "Settings",
        "A flag of `tidemill serve` wins over its environment variable, that over `tidemill.toml`, that over the "
        'default. A key of the file is the flag without its dashes: `data-dir = "/var/lib/tidemill"`. `--config` '
        f"(`{settings.CONFIG_VARIABLE}`) names another file. An unknown name is refused, with the nearest that "
        "there is.",
        "## Node",
        _table(("flag", "environment", "default", "meaning"), node),
        "## Broker",
        "In Kafka's spelling: under `[broker]` in `tidemill.toml`, or `tidemill serve --set num.partitions=3` (may be "
        f"given often; `{settings.SET_VARIABLE}` in the environment).",
        _settings_table(broker_settings.SETTINGS),
        "## Topic",
        "In Kafka's spelling: `tidemill topic create orders --config retention.ms=3600000`, `tidemill topic alter`, or "
        "any Kafka admin client. What a topic does not say is the broker's default.",
        _settings_table(topic_settings.SETTINGS),
    )


def apis_page() -> str:
    """The APIs of Kafka's protocol that are served."""
    router = standard_router()
    rows = [
        (str(api.key), api.name, f"{max(api.versions[0], api.served_from)}-{api.versions[1]}")
        for api in router.listed()
    ]
    features = [(feature.name, f"{feature.low}-{feature.high}", str(feature.in_force)) for feature in router.features]
    return _page(
        "Kafka APIs",
        f"The {len(rows)} APIs of Kafka's protocol that the broker serves, with their versions. Clients learn them by "
        "themselves; a request that is not in the table ends the connection.",
        _table(("key", "API", "versions"), rows),
        "## Features",
        _table(("feature", "levels", "in force"), features),
    )


def errors_page() -> str:
    """The errors that clients meet."""
    return _page(
        "Errors",
        "What can go wrong, as Kafka numbers it. *Retriable*: the same request may succeed later, and clients do try "
        "again. Python raises the classes of `tidemill.model.errors`; Kafka clients show the code.",
        "## Streams, groups, transactions",
        _error_table(_classes(errors)),
        "## Timelines",
        "gRPC carries the name; the Python client raises the class of that name, of "
        "`tidemill.model.timeline_errors`. All are a `tidemill.TimelineError`, and everything on this page is a "
        "`tidemill.TidemillError`.",
        _error_table(_classes(timeline_errors)),
    )


def cli_page() -> str:
    """Every command with its arguments and options."""
    root = tree({name: command.target for name, command in COMMANDS.items()})
    parts = [part for name in COMMANDS for part in _command_parts(f"tidemill {name}", root.commands[name], 2)]
    return _page(
        "Commands",
        "Tables on a terminal, `--json` for programs. Exit code 0: fine, 1: failed, 2: wrong use, 130: stopped before "
        "its end. Errors are one line on standard error. `tidemill --install-completion` teaches your shell "
        "to complete commands and options.",
        *parts,
    )


PAGES = {"settings.md": settings_page, "apis.md": apis_page, "errors.md": errors_page, "cli.md": cli_page}


def _page(title: str, *parts: str) -> str:
    return "\n\n".join((f"# {title}", MADE, *parts)) + "\n"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _code(text: str) -> str:
    return f"`{text}`" if text else "-"


def _settings_table(table: Mapping[str, Setting]) -> str:
    rows = [(f"`{each.name}`", _code(_default(each)), _limits(each), each.doc) for each in table.values()]
    return _table(("setting", "default", "limits", "meaning"), rows)


def _default(setting: Setting) -> str:
    return "none" if setting.default == str(INT64_MAX) else setting.default


def _limits(setting: Setting) -> str:
    if setting.choices:
        return ", ".join(setting.choices)
    low = "" if setting.low is None else f"from {setting.low:g}"
    high = "" if setting.high is None else f"to {setting.high:g}"
    return f"{low} {high}".strip() or "-"


def _classes(module: Any) -> list[type[errors.TidemillError]]:
    found = [
        each for each in vars(module).values() if isinstance(each, type) and issubclass(each, errors.TidemillError)
    ]
    own = [each for each in found if each.__module__ == module.__name__ and each not in FAMILIES]
    return sorted(own, key=lambda each: (each.code, each.__name__))


def _error_table(classes: Iterable[type[errors.TidemillError]]) -> str:
    rows = [
        (
            str(each.code),
            each.__name__,
            "yes" if each.retriable else "no",
            (each.__doc__ or "").strip().split("\n\n")[0],
        )
        for each in classes
    ]
    return _table(("code", "error", "retriable", "meaning"), rows)


def _command_parts(path: str, command: Any, level: int) -> Iterator[str]:
    yield f"{'#' * level} `{path}`"
    below = getattr(command, "commands", None)
    if below:
        yield _sentences(command.help)
        for name, each in below.items():
            yield from _command_parts(f"{path} {name}", each, level + 1)
        return
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    names = " ".join(_argument(each) for each in arguments)
    yield f"```\n{path}{f' {names}' if names else ''} [OPTIONS]\n```"
    yield _sentences(command.help)
    rows = [(_argument(each), _text(each.help)) for each in arguments]
    rows += [(_option(each), _text(each.help) + _defaults(each)) for each in command.params if each not in arguments]
    yield _table(("", "meaning"), rows)


def _sentences(text: str | None) -> str:
    """The command's own words; an example becomes code."""
    paragraphs = [" ".join(part.split()) for part in (text or "").split("\n\n") if part.strip()]
    return "\n\n".join(
        f"`{part.removeprefix('Example: ')}`" if part.startswith("Example: ") else part for part in paragraphs
    )


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return name if parameter.required or name.startswith("[") else f"[{name}]"


def _option(parameter: Any) -> str:
    return ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))


def _text(text: str | None) -> str:
    return " ".join((text or "").split())


def _defaults(parameter: Any) -> str:
    told = []
    if parameter.envvar:
        told.append(f"environment `{parameter.envvar}`")
    if isinstance(parameter.show_default, str):  # what a command without it falls back to, in the end
        told.append(f"default `{parameter.show_default}`")
    elif parameter.default not in {None, False, ""} and not parameter.multiple:
        shown = "" if parameter.default is True else str(parameter.default)
        told += [f"default `{shown}`"] if shown else []
    return f" ({'; '.join(told)})" if told else ""


def main() -> None:
    """Write the pages."""
    for name, make in PAGES.items():
        FOLDER.joinpath(name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
