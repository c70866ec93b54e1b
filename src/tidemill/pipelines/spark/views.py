"""Builds the views of a pipeline: topics with columns, transformations over them, and expectations."""

import importlib.util
import traceback
from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual alias

from tidemill.pipelines.run.core.progress import BROKEN, NEWEST
from tidemill.pipelines.source.core.options import MAX_BYTES
from tidemill.pipelines.spark.queries import line_of
from tidemill.pipelines.spec.core.spec import Expectation, Format, Lost, Otherwise, Source, WrongSpec
from tidemill.pipelines.spec.folder import Folder, TransformationStep

KEY, TIMESTAMP = "_key", "_timestamp"
"""The columns that JSON sources have in addition to their schema. They belong to the record, not to its value."""


def make_views(spark: SparkSession, folder: Folder, group: str) -> dict[str, DataFrame]:
    """All views by name, also registered for SQL. The consumer group `group` shows the progress of the query."""
    views: dict[str, DataFrame] = {}
    for source in folder.spec.sources:
        views[source.name] = _known(source.name, _source(spark, folder, source, group), folder)
    for step in folder.steps:
        name = step.transformation.name
        views[name] = _known(name, _transformed(spark, step, views), folder)
    return views


def _source(spark: SparkSession, folder: Folder, source: Source, group: str) -> DataFrame:
    reader = (
        spark.readStream.format("tidemill")
        .options(**folder.spec.kafka)
        .option("subscribe", source.topic)
        .option("startingOffsets", source.start)
        .option("failOnDataLoss", str(source.lost is Lost.FAIL).lower())
        .option("includeHeaders", str(source.format is Format.RAW).lower())
        .option("kafka.group.id", group)
    )
    if source.max_bytes is not None:
        reader = reader.option(MAX_BYTES, str(source.max_bytes))
    rows = reader.load()
    newest = F.max(F.unix_millis("timestamp")).alias(NEWEST)
    rows = rows.observe(f"source_{source.name}", newest)
    try:
        if source.schema is not None:
            value = F.from_json(F.col("value").cast("string"), source.schema).alias("value")
            rows = rows.select(value, F.col("key").cast("string").alias(KEY), F.col("timestamp").alias(TIMESTAMP))
            rows = rows.select("value.*", KEY, TIMESTAMP)
        if source.watermark is not None:
            rows = rows.withWatermark(source.watermark.column, source.watermark.delay)
    except PySparkException as error:
        raise WrongSpec(f"{folder.root}: sources.{source.name}: {line_of(str(error))}") from None
    return rows


def _transformed(spark: SparkSession, step: TransformationStep, views: Mapping[str, DataFrame]) -> DataFrame:
    try:
        if step.transformation.sql:
            return spark.sql(step.text.strip().removesuffix(";"))
        return _called(step, views)
    except PySparkException as error:
        raise WrongSpec(f"{_place(step, error)}: {line_of(str(error))}") from None
    except WrongSpec:
        raise
    except Exception as error:
        raise WrongSpec(f"{_place(step, error)}: {type(error).__name__}: {line_of(str(error))}") from error


def _place(step: TransformationStep, error: Exception) -> str:
    """The file, and its last line in the traceback."""
    file = str(step.path.absolute())
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return f"{step.path}: line {lines[-1]}" if lines else str(step.path)


def _called(step: TransformationStep, views: Mapping[str, DataFrame]) -> DataFrame:
    name = step.transformation.name
    found = importlib.util.spec_from_file_location(f"tidemill_pipeline_{name}", step.path)
    if found is None or found.loader is None:
        raise WrongSpec(f"{step.path} cannot be loaded as a Python module")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    made = getattr(module, name)(*(views[view] for view in step.reads))
    if not isinstance(made, DataFrame):
        raise WrongSpec(f"{step.path}: {name} returns {type(made).__name__}, not a DataFrame")
    return made


def _known(name: str, rows: DataFrame, folder: Folder) -> DataFrame:
    """Add the view's expectations and register it for SQL."""
    for expectation in folder.spec.expectations:
        if expectation.view == name:
            try:
                rows = _expected(rows, expectation)
            except PySparkException as error:
                where = f"{folder.root}: expectations.{expectation.name}.expect"
                raise WrongSpec(f"{where}: {line_of(str(error))}") from None
    rows.createOrReplaceTempView(name)
    return rows


def _expected(rows: DataFrame, expectation: Expectation) -> DataFrame:
    """Apply an expectation. A row for which the predicate is null violates it."""
    holds = F.coalesce(F.expr(expectation.predicate), F.expr("false"))
    if expectation.otherwise is Otherwise.FAIL:
        text = f"expectation {expectation.name} does not hold: {expectation.predicate}"
        return rows.where(F.when(holds, F.expr("true")).otherwise(F.raise_error(F.lit(text)).cast("boolean")))
    count = F.count_if(~holds).alias(f"{BROKEN}{expectation.name}")
    rows = rows.observe(f"expectation_{expectation.name}", count)
    return rows.where(holds) if expectation.otherwise is Otherwise.DROP else rows
