"""`tidemill serve`: runs a broker until a signal stops it. Its flags are the rows of settings.py."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from tidemill.cli.errors import WrongUse
from tidemill.model.errors import InvalidConfig
from tidemill.settings import ROWS, Settings, load, parse_pair, secrets_in_flags

_ROWS = {row.name: row for row in ROWS}


def _help(name: str) -> str:
    row = _ROWS[name]
    default = f"default: {row.default}" if row.default else "no default"
    return f"{row.doc} ({row.variable}; {default})"


def _flag(name: str) -> Any:
    return typer.Option(f"--{name}", help=_help(name), show_default=False)


def serve(
    data_dir: Annotated[str | None, _flag("data-dir")] = None,
    kafka: Annotated[str | None, _flag("kafka")] = None,
    grpc: Annotated[str | None, _flag("grpc")] = None,
    http: Annotated[str | None, _flag("http")] = None,
    http_hosts: Annotated[str | None, _flag("http-hosts")] = None,
    console_readonly: Annotated[
        bool | None, typer.Option("--console-readonly", help=_help("console-readonly"), show_default=False)
    ] = None,
    advertise: Annotated[str | None, _flag("advertise")] = None,
    advertise_grpc: Annotated[str | None, _flag("advertise-grpc")] = None,
    advertise_http: Annotated[str | None, _flag("advertise-http")] = None,
    node_id: Annotated[str | None, _flag("node-id")] = None,
    rack: Annotated[str | None, _flag("rack")] = None,
    session_ttl_ms: Annotated[str | None, _flag("session-ttl-ms")] = None,
    roles: Annotated[str | None, _flag("roles")] = None,
    coordination: Annotated[str | None, _flag("coordination")] = None,
    cluster_secret: Annotated[str | None, _flag("cluster-secret")] = None,
    streams: Annotated[str | None, _flag("streams")] = None,
    timelines: Annotated[str | None, _flag("timelines")] = None,
    log_level: Annotated[str | None, _flag("log-level")] = None,
    log_format: Annotated[str | None, _flag("log-format")] = None,
    metrics_labels: Annotated[str | None, _flag("metrics-labels")] = None,
    otel_metrics: Annotated[str | None, _flag("otel-metrics")] = None,
    otel_traces: Annotated[str | None, _flag("otel-traces")] = None,
    config: Annotated[
        str | None,
        typer.Option("--config", help="Settings file. (TIDEMILL_CONFIG; default: tidemill.toml if it exists)"),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A broker setting in Kafka's spelling. Repeatable."),
    ] = None,
) -> None:
    """Run a broker.

    A flag overrides its environment variable, the variable overrides tidemill.toml, and the file overrides the default.
    `none` disables a listener, and port 0 picks a free port. When the broker is ready, it prints one line with the real
    addresses.

    Example: tidemill serve --data-dir /var/lib/tidemill --kafka 127.0.0.1:9092 --set num.partitions=3
    """
    given = {name: value for name, value in locals().items() if name not in {"config", "set_"}}
    flags = {name.replace("_", "-"): _text(value) for name, value in given.items()}
    settings = _load(flags, config, set_ or [])
    from tidemill.app.startup import gc_disabled, import_structlog

    with gc_disabled():
        import_structlog()
        from tidemill.app.process import run

        run(settings, secrets_in_flags(flags, dict(map(parse_pair, set_ or []))))


def _text(value: str | bool | None) -> str | None:
    """The text of a flag; a flag without a value is `true`."""
    return str(value).lower() if isinstance(value, bool) else value


def _load(flags: dict[str, str | None], config: str | None, pairs: list[str]) -> Settings:
    try:
        return load(flags, os.environ, config=config, broker=dict(map(parse_pair, pairs)), folder=Path())
    except InvalidConfig as error:
        text = str(error)
        raise WrongUse(f"{text}{'' if text.endswith('?') else ';'} see tidemill serve --help") from None
