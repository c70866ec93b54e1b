"""`tidemill sql --ddl`: the statements with which a broker creates its tables on ClickHouse servers."""

from pathlib import Path

from tidemill.cli.errors import WrongUse
from tidemill.cli.output import remark, say, show_json

EXAMPLE = "tidemill sql --ddl 'clickhouse://host1|host1b,host2/tidemill?cluster=main'"


def show_definitions(url: str | None, *, as_json: bool) -> None:
    """Print the statements for a URL of `--streams`, in the order in which a broker runs them. Nothing is contacted."""
    if url is None:
        raise WrongUse(f"--ddl needs the URL of --streams; for example: {EXAMPLE}")
    from tidemill.app.engines import load_tables

    clickhouse = load_tables()
    statements = list(clickhouse.definitions(clickhouse.parse(url, Path())))
    if as_json:
        show_json(statements)
        return
    for statement in statements:
        say(f"{statement};\n")
    remark(f"{len(statements)} statements; a broker runs those that a server lacks when it starts")
