"""Write the pages of this folder from the tables that the broker itself uses: `python docs/reference/generate.py`.

A test compares the pages with what this program would write, so that a page cannot become stale.
"""

# ruff: noqa: INP001 -- a program next to the pages it makes

import ast
import inspect
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tidemill
import tidemill.spark
import tidemill.testing
from tidemill import settings
from tidemill.cli.completion import tree
from tidemill.cli.main import COMMANDS
from tidemill.client.parallel.stats import Stats, StatsCollector
from tidemill.model import broker_settings, errors, group_settings, timeline_errors, topic_settings
from tidemill.model.metric_labels import CLUSTER
from tidemill.model.topic_settings import INT64_MAX, Setting
from tidemill.security.core.api_rights import ApiRights
from tidemill.servers.grpc.authorization_table import AUTHORIZATION as GRPC_AUTHORIZATION
from tidemill.servers.http.api.openapi import openapi_document
from tidemill.servers.http.core.authorization_table import ROUTES
from tidemill.servers.kafka.api_table import standard_table
from tidemill.servers.kafka.authorization_table import AUTHORIZATION

FOLDER = Path(__file__).parent
FAMILIES = {errors.TidemillError, errors.KafkaError, timeline_errors.TimelineError}
MADE = "<!-- Made by `python docs/reference/generate.py`; change the tables in the source, not this page. -->"
SOURCE = Path(tidemill.__file__).parent
METRIC_CALLS = {
    "Gauge": "gauge",
    "CounterReading": "counter",
    "HistogramReading": "histogram",
}
"""Calls that define a metric of the broker, with its Prometheus type."""
UNITS = ("seconds", "bytes", "records", "partitions", "offset")
"""Units that the name of a metric ends with."""
PUBLIC_NAMES = {
    "Timelines": ("Timeline", "AsyncTimeline", "Message", "RecurrenceRule", "Lease", "AsyncLease"),
    "Streams over gRPC": ("TopicProducer", "AsyncTopicProducer", "Consumer", "AsyncConsumer"),
    "Parallel consumer": ("ParallelConsumer", "Retry"),
    "Errors": ("TidemillError", "TimelineError", "StaleLease", "DeliveryFailed", "Halted"),
}
"""The names of `tidemill` in the order of the page. A public name that is missing here stops the program."""


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
        "## Other variables",
        _table(("environment", "meaning"), _other_variables()),
        "## Broker",
        "In Kafka's spelling: under `[broker]` in `tidemill.toml`, or `tidemill serve --set num.partitions=3` (may be "
        f"given often; `{settings.SET_VARIABLE}` in the environment).",
        _settings_table(broker_settings.SETTINGS),
        "## Topic",
        "In Kafka's spelling: `tidemill topic create orders --config retention.ms=3600000`, `tidemill topic alter`, or "
        "any Kafka admin client. What a topic does not say is the broker's default.",
        _settings_table(topic_settings.SETTINGS),
        "## Group",
        "In Kafka's spelling, with any Kafka admin client: `kafka-configs.sh --entity-type groups`. What a group does "
        "not say is the broker's default.",
        _settings_table(group_settings.SETTINGS),
    )


def _other_variables() -> list[tuple[str, str]]:
    """The variables that are no flags: files with secrets, and those of clients."""
    files = [f"{row.variable}{settings.FILE_SUFFIX}" for row in settings.ROWS if row.name in settings.SECRET_ROWS]
    bootstrap, grpc, http = settings.BOOTSTRAP_VARIABLES
    return [
        (f"`{settings.CONFIG_VARIABLE}`", "The settings file."),
        (f"`{settings.SET_VARIABLE}`", "Broker settings: `a=b c=d`."),
        (
            _code_list([*files, settings.SET_VARIABLE + settings.FILE_SUFFIX]),
            "A file that holds the value, for secrets.",
        ),
        (
            f"`{settings.ADMIN_PASSWORD_FILE_VARIABLE}`",
            "A file with the password of the super user `admin`. A start creates this user if it does not exist.",
        ),
        (f"`{bootstrap}`", "Clients: the Kafka address that commands connect to."),
        (f"`{grpc}`", "Clients: the gRPC address, for timelines."),
        (f"`{http}`", "Clients: the HTTP address, for SQL."),
        (f"`{settings.CLIENT_VARIABLE}`", "Clients: a file of Kafka client settings for TLS and login, as `--client`."),
        (
            "`TIDEMILL_SERVICE_HOST`, `TIDEMILL_PORT`, ...",
            "Ignored: Kubernetes sets them in every pod for services whose names begin with tidemill.",
        ),
    ]


def _code_list(names: Sequence[str]) -> str:
    return ", ".join(map(_code, names))


def apis_page() -> str:
    """The APIs of Kafka's protocol that are served."""
    router = standard_table()
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


def authorization_page() -> str:
    """The rights that each API checks."""
    apis = [
        row
        for api in standard_table().listed()
        for row in _rights_rows((str(api.key), api.name), AUTHORIZATION[api.key])
    ]
    methods = [row for name, rights in GRPC_AUTHORIZATION.items() for row in _rights_rows((name,), rights)]
    return _page(
        "Authorization",
        "The ACLs that a client needs for each API of Kafka's protocol, as in Apache Kafka. READ, WRITE, DELETE and "
        "ALTER imply DESCRIBE; ALTER_CONFIGS implies DESCRIBE_CONFIGS. DENY wins over ALLOW. Super users and the "
        "brokers of the cluster need no ACLs. Grant rights with `tidemill acl grant` or with any Kafka admin client.",
        "## Kafka",
        _table(("key", "API", "operation", "resource", "note"), apis),
        "## gRPC",
        "A timeline is a resource of type TOPIC with the timeline's name. A call that one broker forwards to another "
        "is checked with the rights of the client that it came from.",
        _table(("method", "operation", "resource", "note"), methods),
        "## HTTP",
        "A login is needed where `tidemill.http.security` authenticates clients. The records that are scheduled for a "
        "topic belong to that topic.",
        _table(("path", "login", "operation", "resource", "note"), list(_http_rows())),
    )


def _http_rows() -> Iterator[tuple[str, ...]]:
    for route in ROUTES:
        place = f"`{route.method} {route.path}`"
        for right in route.rights:
            notes = "; ".join(note for note in (right.note, route.note) if note)
            yield place, route.login.value, right.operation.name, right.resource_type.name, notes
        if not route.rights:
            yield place, route.login.value, "none", "", route.note


def _rights_rows(head: tuple[str, ...], checked: ApiRights) -> list[tuple[str, ...]]:
    if not checked.rights:
        return [(*head, "none", "", checked.note)]
    return [
        (
            *head,
            right.operation.name,
            right.resource_type.name,
            "; ".join(note for note in (right.note, checked.note) if note),
        )
        for right in checked.rights
    ]


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


def python_page() -> str:
    """The public Python names; mkdocstrings fills in signatures and docstrings."""
    listed = {name for names in PUBLIC_NAMES.values() for name in names} | {"__version__"}
    if listed != set(tidemill.__all__):
        raise SystemExit(f"PUBLIC_NAMES does not match tidemill.__all__: {sorted(listed ^ set(tidemill.__all__))}")
    parts = []
    for title, names in PUBLIC_NAMES.items():
        parts += [f"## {title}", *(f"::: tidemill.{name}" for name in names)]
    return _page(
        "Python",
        "The public names. Other modules may change in any version. `make docs` renders the signatures; on a terminal, "
        '`python -c "import tidemill; help(tidemill.Timeline)"` prints the same text.',
        *parts,
        "## Testing",
        "`from tidemill.testing import Broker`. The pytest fixture `tidemill_broker` returns one. "
        "[Guide](../guides/testing.md).",
        *(f"::: tidemill.testing.{name}" for name in tidemill.testing.__all__),
        "## Spark",
        "`import tidemill.spark`. [Guide](../guides/spark.md).",
        *(f"::: tidemill.spark.{name}" for name in tidemill.spark.__all__),
    )


class MetricDefinition(NamedTuple):
    """A metric as the source defines it."""

    name: str
    kind: str
    labels: tuple[str, ...]
    doc: str

    @property
    def unit(self) -> str:
        """The unit, from the name; empty for a number without one."""
        words = self.name.removesuffix("_total").removesuffix("_max").split("_")
        return next((word for word in reversed(words) if word in UNITS), "")


def metrics_page() -> str:
    """Every metric of the broker and of the parallel consumer."""
    return _page(
        "Metrics",
        "`GET /metrics` on the HTTP server returns the metrics in Prometheus text format, or as OpenMetrics to "
        "scrapers that prefer it. The usual `process_*` and "
        "`python_gc_*` metrics of the Python client are there, too: memory, open files and their limit, processor "
        "time.",
        f"Every metric has the label `{CLUSTER}`, the id of the cluster (`/api/status` shows it), and the "
        "labels of the setting `metrics-labels`. The tables do not repeat them.",
        "## Broker",
        _metric_table(broker_metrics(SOURCE)),
        "## Parallel consumer",
        "`ParallelConsumer(registry=...)` adds these to a `prometheus_client` registry of your program.",
        _metric_table(parallel_metrics()),
    )


def broker_metrics(source: Path) -> list[MetricDefinition]:
    """The metrics that the source defines by a literal name, read from its syntax tree."""
    found: dict[str, MetricDefinition] = {}
    for path in sorted(source.rglob("*.py")):
        if path.name.endswith(("_pb2.py", "_pb2_grpc.py")):
            continue
        tree_of_file = ast.parse(path.read_text(encoding="utf-8"))
        for function in ast.walk(tree_of_file):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                found |= {each.name: each for each in _metrics_of(function) if each.name not in found}
    return sorted(found.values())


def _metrics_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[MetricDefinition]:
    for node in ast.walk(function):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in METRIC_CALLS):
            continue
        if len(node.args) > 1 and isinstance(node.args[0], ast.Constant) and isinstance(node.args[1], ast.Constant):
            name, doc, kind = node.args[0].value, node.args[1].value, METRIC_CALLS[node.func.id]
            labels = [each.value for each in node.keywords if each.arg == "labels"] or node.args[3:4]
            known = _assigned_before(function, node.lineno)
            names = tuple(label for each in labels for label in _label_names(each, known))
            yield MetricDefinition(f"{name}_total" if kind == "counter" else name, kind, names, doc)


def _assigned_before(function: ast.AST, line: int) -> dict[str, ast.expr]:
    """The variables of a function with their newest value before a line."""
    assignments = [node for node in ast.walk(function) if isinstance(node, ast.Assign) and node.lineno < line]
    return {
        target.id: node.value
        for node in sorted(assignments, key=lambda each: each.lineno)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _label_names(node: ast.expr, assigned: Mapping[str, ast.expr]) -> Iterator[str]:
    """Names in `["api", "code"]`, in `(("op", operation), label)` and behind the variables of the function."""
    if isinstance(node, ast.Name) and node.id in assigned:
        yield from _label_names(assigned[node.id], assigned)
    elif isinstance(node, ast.List):
        yield from (each.value for each in node.elts if isinstance(each, ast.Constant))
    elif isinstance(node, ast.Tuple) and node.elts and isinstance(node.elts[0], ast.Constant):
        yield node.elts[0].value
    elif isinstance(node, ast.Tuple):
        for each in node.elts:
            yield from _label_names(each, assigned)


def parallel_metrics() -> list[MetricDefinition]:
    """The metrics of a parallel consumer, as its collector reports them."""
    empty: dict[str, Any] = dict.fromkeys(inspect.signature(Stats).parameters, 0)
    collector = StatsCollector()
    collector.add("group", lambda: Stats(**empty | {"committed": {}, "contiguous": {}, "assigned": ()}))
    return [
        MetricDefinition(
            f"{each.name}_total" if each.type == "counter" else each.name,
            each.type,
            each._labelnames,  # noqa: SLF001 -- the library has no public name for it
            each.documentation,
        )
        for each in collector.collect()
    ]


def _metric_table(metrics: Iterable[MetricDefinition]) -> str:
    rows = [
        (
            f"`{each.name}`",
            each.kind,
            ", ".join(f"`{label}`" for label in each.labels) or "-",
            each.unit or "-",
            each.doc,
        )
        for each in metrics
    ]
    return _table(("metric", "type", "labels", "unit", "meaning"), rows)


def openapi_text() -> str:
    """The document of the HTTP API, with a line for each operation and each schema."""
    document = openapi_document()
    parts = ("paths", "components")
    head = [f"{json.dumps(name)}:{json.dumps(value)}" for name, value in document.items() if name not in parts]
    paths = [f"{json.dumps(path)}:{_lines(methods)}" for path, methods in document["paths"].items()]
    components = [f"{json.dumps(kind)}:{_lines(found)}" for kind, found in document["components"].items()]
    paths_text, components_text = ",\n".join(paths), ",\n".join(components)
    return ",\n".join(
        ["{" + ",\n".join(head), f'"paths":{{\n{paths_text}}}', f'"components":{{\n{components_text}}}}}\n']
    )


def _lines(found: Mapping[str, Any]) -> str:
    lines = (f"{json.dumps(name)}:{json.dumps(value, separators=(',', ':'))}" for name, value in found.items())
    return "{\n" + ",\n".join(lines) + "}"


PAGES = {
    "settings.md": settings_page,
    "apis.md": apis_page,
    "authorization.md": authorization_page,
    "errors.md": errors_page,
    "cli.md": cli_page,
    "python.md": python_page,
    "metrics.md": metrics_page,
    "openapi.json": openapi_text,
}


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
    notes = []
    if parameter.envvar:
        notes.append(f"environment `{parameter.envvar}`")
    if isinstance(parameter.show_default, str):  # what a command without it falls back to, in the end
        notes.append(f"default `{parameter.show_default}`")
    elif parameter.default not in {None, False, ""} and not parameter.multiple:
        shown = "" if parameter.default is True else str(parameter.default)
        notes += [f"default `{shown}`"] if shown else []
    return f" ({'; '.join(notes)})" if notes else ""


def main() -> None:
    """Write the pages."""
    for name, make in PAGES.items():
        FOLDER.joinpath(name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
