"""`tidemill doctor`: checks whether this machine can run Tidemill, and what optional features it lacks."""

import errno
import importlib.metadata
import importlib.util
import os
import re
import resource
import shutil
import socket
import sys
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from tidemill.cli.errors import CommandFailed
from tidemill.cli.options import Json
from tidemill.cli.output import show
from tidemill.model.addresses import Address
from tidemill.model.errors import InvalidConfig
from tidemill.pipelines.run import java
from tidemill.settings import CONFIG_FILE, CONFIG_VARIABLE, PREFIX, Settings, load, shown

PYTHON_MIN = (3, 11)
FREE_BYTES_MIN = 1 << 30
FILES_MIN = 4_096
EXTRAS = {
    "spark": ("pyspark", "pyarrow", "pandas", "yaml"),
    "lake": ("deltalake", "pyiceberg"),
    "plots": ("matplotlib",),
    "postgres": ("asyncpg",),
    "cluster": ("aetcd",),
    "clickhouse": ("chdb", "clickhouse_connect"),
}
CONNECT = {"grpc_status": "grpcio-status", "google.rpc": "googleapis-common-protos"}
PANDAS_BELOW = 3
SPARK_MIN = (4, 2)
SERVERS = {
    "etcd": ("etcd", "needed for a cluster of brokers: apt-get install etcd-server"),
    "postgres": ("postgres", "useful for large timelines: apt-get install postgresql"),
}
POSTGRES_PLACES = "/usr/lib/postgresql/*/bin/postgres"
ETCD_S = 3.0
MISSING_SHOWN = 20


class Finding(NamedTuple):
    """The result of one check: fine, note or wrong."""

    check: str
    state: str
    found: str
    advice: str = ""


def doctor(
    data_dir: Annotated[str | None, typer.Option(help="Data directory of the broker.")] = None,
    coordination: Annotated[str | None, typer.Option(help="etcd of a cluster, to check that it answers.")] = None,
    streams: Annotated[str | None, typer.Option(help="ClickHouse of streams, to check that it answers.")] = None,
    timelines: Annotated[str | None, typer.Option(help="PostgreSQL of timelines, to check that it answers.")] = None,
    config: Annotated[str | None, typer.Option(help=f"Settings file. Default: {CONFIG_FILE} if it exists.")] = None,
    as_json: Json = False,
) -> None:
    """Check Python, settings, ports, disk, limits, Java and the optional engines. Exit code 1 if a check fails.

    The settings are read as tidemill serve reads them: flags, environment, file, defaults.

    Example: tidemill doctor --config /etc/tidemill/tidemill.toml
    """
    flags = {"data-dir": data_dir, "coordination": coordination, "streams": streams, "timelines": timelines}
    settings, settings_finding = _settings(flags, config)
    findings = [
        _python(),
        settings_finding,
        *(_listener(name, getattr(settings, name)) for name in ("kafka", "grpc", "http")),
        *_security(settings),
        _disk(settings.data_dir),
        *_data(settings.data_dir),
        _files(),
        _java(),
        _spark(),
        _spark_connect(),
        *_extras(),
        *_servers(),
        *_coordination(settings.coordination),
        *_streams(settings.streams),
        *_timelines(settings.timelines),
    ]
    show([finding._asdict() for finding in findings], ("check", "state", "found", "advice"), as_json=as_json)
    wrong = list(dict.fromkeys(finding.check for finding in findings if finding.state == "wrong"))
    if wrong:
        raise CommandFailed(f"{', '.join(wrong)}: see the advice above")


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < PYTHON_MIN:
        return Finding("python", "wrong", version, "install Python 3.11 or newer")
    return Finding("python", "fine", version)


def _settings(flags: dict[str, str | None], config: str | None) -> tuple[Settings, Finding]:
    """The settings of a broker. If they are invalid, the other checks use the defaults."""
    file = Path(config or os.environ.get(CONFIG_VARIABLE) or CONFIG_FILE)
    try:
        found = load(flags, os.environ, config=config, folder=Path())
    except InvalidConfig as error:
        return load(), Finding("settings", "wrong", str(error), "see tidemill serve --help")
    return found, Finding("settings", "fine", str(file) if file.exists() else f"no {CONFIG_FILE} here")


def _listener(name: str, address: Address | None) -> Finding:
    """Check whether the address of a listener can be opened."""
    check = f"{name} listener"
    if address is None:
        return Finding(check, "fine", "disabled")
    try:
        family, kind, _, _, place = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(place)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            advice = f"a broker may already run; otherwise use: tidemill serve --{name} 127.0.0.1:0"
            return Finding(check, "note", f"{address} is in use", advice)
        advice = f"a broker cannot open it; correct --{name}, {PREFIX}{name.upper()} or the settings file"
        return Finding(check, "wrong", f"{address}: {error.strerror}", advice)
    return Finding(check, "fine", f"{address} is free")


def _security(settings: Settings) -> list[Finding]:
    """Logins, certificates, and the connections to engines."""
    from datetime import UTC, datetime

    from tidemill.app.security_inspection import security_findings

    return [Finding(*each) for each in security_findings(settings, datetime.now(UTC))]


def _disk(data_dir: Path) -> Finding:
    place = data_dir.resolve()
    while not place.exists():
        place = place.parent
    if not os.access(place, os.W_OK):
        return Finding("disk", "wrong", f"{data_dir} is not writable", "choose another directory with --data-dir")
    free = shutil.disk_usage(place).free
    if free < FREE_BYTES_MIN:
        return Finding(
            "disk", "note", f"{free / 2**30:.1f} GiB free", "the broker rejects records when the disk is full"
        )
    return Finding("disk", "fine", f"{free / 2**30:.1f} GiB free")


def _data(data_dir: Path) -> list[Finding]:
    """What is missing in a data directory that was used before. A start would report the same."""
    if not data_dir.is_dir():
        return []
    from tidemill.app.inspection import missing_files

    check = "data directory"
    try:
        missing = missing_files(data_dir)
    except (InvalidConfig, OSError) as error:
        return [Finding(check, "wrong", str(error), "restore it from a backup")]
    if not missing:
        return [Finding(check, "fine", f"{data_dir} is complete")]
    more = f" (and {len(missing) - MISSING_SHOWN} more)" if len(missing) > MISSING_SHOWN else ""
    advice = f"restore it from a backup, or run: tidemill repair --data-dir {data_dir}"
    return [
        *(Finding(check, "wrong", each, advice) for each in missing[: MISSING_SHOWN - 1]),
        Finding(check, "wrong", missing[min(len(missing), MISSING_SHOWN) - 1] + more, advice),
    ]


def _files() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < FILES_MIN:
        return Finding("open files", "note", f"limit {soft}", f"for many partitions raise it: ulimit -n {FILES_MIN}")
    return Finding("open files", "fine", f"limit {soft:,}")


def _java() -> Finding:
    found, problem = java.look()
    return Finding("java", "note", found, f"{problem}; {java.advice()}") if problem else Finding("java", "fine", found)


def _spark() -> Finding:
    if not _there("pyspark"):
        return Finding("spark", "note", "pyspark is not installed", "pip install 'tidemill[spark]'")
    version, pandas = _version("pyspark"), _version("pandas")
    if _numbers(version)[:2] < SPARK_MIN:
        return Finding(
            "spark", "note", f"pyspark {version}", "too old; upgrade with: pip install --upgrade 'tidemill[spark]'"
        )
    if pandas and _numbers(pandas)[0] >= PANDAS_BELOW:
        return Finding(
            "spark", "note", f"pyspark {version}, pandas {pandas}", "PySpark needs pandas 2: pip install 'pandas<3'"
        )
    return Finding("spark", "fine", f"pyspark {version}")


def _spark_connect() -> Finding:
    missing = [package for module, package in CONNECT.items() if not _there(module)]
    if missing:
        return Finding(
            "spark connect",
            "note",
            f"{' and '.join(missing)} missing",
            f"for --remote: pip install {' '.join(missing)}",
        )
    return Finding("spark connect", "fine", "the client is installed")


def _extras() -> list[Finding]:
    found = []
    for name, modules in EXTRAS.items():
        missing = [module for module in modules if not _there(module)]
        if missing:
            advice = f"pip install 'tidemill[{name}]'"
            found.append(Finding(f"extra {name}", "note", f"{', '.join(missing)} not installed", advice))
        else:
            found.append(Finding(f"extra {name}", "fine", f"{', '.join(modules)} installed"))
    return found


def _servers() -> list[Finding]:
    """Optional server programs of this machine. Brokers connect to them by address, on any machine."""
    places = {"postgres": sorted(map(str, Path("/").glob(POSTGRES_PLACES.lstrip("/"))))}
    found = []
    for name, (program, advice) in SERVERS.items():
        at = shutil.which(program) or next(iter(reversed(places.get(name, []))), None)
        found.append(Finding(name, "fine", at) if at else Finding(name, "note", "not on this machine", advice))
    return found


def _coordination(url: str) -> list[Finding]:
    """Check whether the etcd members of the cluster answer."""
    if not url.startswith(("etcd:", "etcds:")):
        return []
    if not _there("aetcd"):
        return [Finding("etcd", "wrong", "the package aetcd is missing", "pip install 'tidemill[cluster]'")]
    import ssl

    from tidemill.app.engines import etcd_address
    from tidemill.client.http import fetch

    context = None
    try:
        where = etcd_address(url)
        if where.tls is not None:
            context = ssl.create_default_context(cafile=where.tls.ca)
            if where.tls.cert is not None:
                context.load_cert_chain(where.tls.cert, where.tls.key)
    except (InvalidConfig, OSError) as error:
        return [Finding("etcd", "wrong", str(error), "correct --coordination")]
    scheme = "http" if context is None else "https"
    found = []
    for member in where.members:
        try:
            well = b'"true"' in fetch(f"{scheme}://{member}/health", timeout_s=ETCD_S, context=context)
        except (OSError, ValueError) as error:
            found.append(
                Finding(f"etcd {member}", "wrong", f"does not answer: {error}", "start it, or correct --coordination")
            )
            continue
        state = (
            ("fine", "answers and has a leader", "")
            if well
            else ("wrong", "has no leader", "start a majority of the members")
        )
        found.append(Finding(f"etcd {member}", *state))
    return found


def _streams(url: str) -> list[Finding]:
    """Check whether the ClickHouse servers of the streams answer, and the version of their tables."""
    if not url.startswith("clickhouse:"):
        return []
    from tidemill.app.engines import load_tables

    found = []
    try:
        for each in load_tables().visit(url):
            check = f"clickhouse {each.name}"
            if each.problem:
                found.append(Finding(check, "wrong", each.problem, "start it, or correct --streams"))
            elif each.schema > each.newest:
                tables = f"{each.version}, tables of version {each.schema}"
                found.append(
                    Finding(check, "wrong", tables, f"this Tidemill supports version {each.newest}; upgrade it")
                )
            else:
                tables = f"tables of version {each.schema} of {each.newest}" if each.schema else "no tables yet"
                found.append(Finding(check, "fine", f"{each.version}, {tables}"))
    except InvalidConfig as error:
        found.append(Finding("clickhouse", "wrong", str(error), "correct --streams"))
    return found


def _timelines(url: str) -> list[Finding]:
    """Check whether the PostgreSQL server of the timelines answers, and the version of its tables."""
    if not url.startswith(("postgresql:", "postgres:")):
        return []
    check = f"postgres {shown(url).partition('://')[2]}"
    if not _there("asyncpg"):
        return [Finding(check, "wrong", "the package asyncpg is missing", "pip install 'tidemill[postgres]'")]
    import asyncio

    from tidemill.app.engines import visit_timelines
    from tidemill.model.timeline_errors import TimelineError

    try:
        found = asyncio.run(visit_timelines(url))
    except (TimelineError, ValueError) as error:
        return [Finding(check, "wrong", f"does not answer: {error}", "start it, or correct --timelines")]
    if found.schema > found.newest:
        tables = f"{found.server}, tables of version {found.schema}"
        return [Finding(check, "wrong", tables, f"this Tidemill supports version {found.newest}; upgrade it")]
    tables = f"tables of version {found.schema} of {found.newest}" if found.schema else "no tables yet"
    return [Finding(check, "fine", f"{found.server}, {tables}")]


def _there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)) or (0,)
