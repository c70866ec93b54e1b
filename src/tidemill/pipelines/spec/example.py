"""The example that `tidemill pipeline init` writes: a small pipeline that runs unchanged."""

from pathlib import Path

from tidemill.pipelines.errors import PipelineError
from tidemill.pipelines.spec.folder import SPEC, STATE

_SPEC = """\
# tidemill pipeline run {folder}
name: {name}
broker: {broker}

sources:
  orders:
    topic: orders
    format: json                      # or raw: key, value, topic, partition, offset, timestamp, headers
    schema: item string, price double, quantity int
    start: earliest                   # or latest

transformations:
  priced:
    file: transformations/priced.py   # a function of this name; its parameters name the views that it reads
  revenue:
    file: transformations/revenue.sql

expectations:
  known_item:
    view: orders
    expect: item is not null
    otherwise: drop                   # or warn, or fail
  sane_price:
    view: orders
    expect: price > 0
    otherwise: warn

sinks:
  revenue:
    from: revenue
    topic: revenue
    key: item
    mode: update                      # each micro-batch writes the totals that changed
  files:
    from: priced
    parquet: lake/priced              # in this folder
    by: item

schedule: every 5 seconds             # or once
"""
_PRICED = '''\
"""Orders with what they cost."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def priced(orders: DataFrame) -> DataFrame:
    return orders.select("item", "quantity", (F.col("price") * F.col("quantity")).alias("total"))
'''
_REVENUE = """\
select item, sum(quantity) as sold, round(sum(total), 2) as revenue
from priced
group by item
"""


def write_example(root: Path, broker: str) -> list[Path]:
    """Create the folder and its files. Existing files are never overwritten."""
    if root.exists() and any(root.iterdir()):
        raise PipelineError(f"{root} is not empty; give the name of a new folder")
    files = {
        root / SPEC: _SPEC.format(folder=root, name=root.absolute().name, broker=broker),
        root / "transformations" / "priced.py": _PRICED,
        root / "transformations" / "revenue.sql": _REVENUE,
        root / ".gitignore": f"{STATE}/\nlake/\n",
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(files)
