"""The dashboard of pipelines: what Spark queries report."""

from tidemill.cli.monitoring.expressions import ANY, graph, max_of, number, rate_of
from tidemill.cli.monitoring.grafana import (
    BROKER,
    CLUSTER,
    SCOPE,
    Board,
    BoardVariable,
    Panel,
    PanelQuery,
    PanelRow,
    Thresholds,
)

PIPELINE = BoardVariable("pipeline", "Pipeline", "label_values(tidemill_pipeline_state{" + SCOPE + "}, pipeline)")
OF_PIPELINE = SCOPE + ',pipeline=~"$pipeline"'
BY, LEGEND = "pipeline, query", "{{pipeline}} {{query}}"

PIPELINES_BOARD = Board(
    "pipelines",
    "Tidemill: pipelines",
    "Rows, lag, micro-batches and state of Spark queries.",
    (CLUSTER, BROKER, PIPELINE),
    (
        PanelRow(
            "State",
            (
                number(
                    "Running",
                    "Pipelines that run.",
                    f'sum(tidemill_pipelines{{{SCOPE},state="running"}}) or vector(0)',
                    Thresholds(),
                ),
                number(
                    "Failed",
                    "Pipelines that ended with an error.",
                    f'sum(tidemill_pipelines{{{SCOPE},state="failed"}}) or vector(0)',
                    ANY,
                ),
                number(
                    "Stale",
                    "Pipelines that have sent no report for a minute.",
                    f'sum(tidemill_pipelines{{{SCOPE},state="stale"}}) or vector(0)',
                    ANY,
                ),
                number(
                    "Failed queries",
                    "Queries that ended with an error, also of pipelines whose other queries run.",
                    f"sum(tidemill_pipeline_query_failed{{{OF_PIPELINE}}}) or vector(0)",
                    ANY,
                ),
                Panel(
                    "State of each pipeline",
                    "1 for the state that a pipeline is in.",
                    (
                        PanelQuery(
                            f"max by (pipeline, state) (tidemill_pipeline_state{{{OF_PIPELINE}}}) > 0",
                            "{{pipeline}} {{state}}",
                        ),
                    ),
                ),
                graph(
                    "Age of the last report",
                    "A running pipeline reports at least every 15 seconds.",
                    f"time() - max by (pipeline) (tidemill_pipeline_last_report_timestamp_seconds{{{OF_PIPELINE}}})",
                    "{{pipeline}}",
                    "s",
                ),
                graph(
                    "Age of the last progress",
                    "How long ago Spark reported progress of a query. A long micro-batch reports at its end.",
                    f"time() - max by ({BY}) (tidemill_pipeline_last_progress_timestamp_seconds{{{OF_PIPELINE}}})",
                    LEGEND,
                    "s",
                ),
            ),
        ),
        PanelRow(
            "Rows and lag",
            (
                graph(
                    "Rows read", "Rows per second.", rate_of(BY, "tidemill_pipeline_rows_in_total", OF_PIPELINE), LEGEND
                ),
                graph(
                    "Rows written",
                    "Rows per second, for sinks that count.",
                    rate_of(BY, "tidemill_pipeline_rows_out_total", OF_PIPELINE),
                    LEGEND,
                ),
                graph(
                    "Rows that arrive",
                    "Rows per second that arrived for the last micro-batch.",
                    max_of(BY, "tidemill_pipeline_input_rows_per_second", OF_PIPELINE),
                    LEGEND,
                ),
                graph(
                    "Lag in records",
                    "Records that a query has not read.",
                    max_of(BY, "tidemill_pipeline_lag_records", OF_PIPELINE),
                    LEGEND,
                ),
                graph(
                    "Lag in seconds",
                    "Age of the newest record that a query has read.",
                    max_of(BY, "tidemill_pipeline_lag_seconds", OF_PIPELINE),
                    LEGEND,
                    "s",
                ),
                graph(
                    "Broken rows",
                    "Rows per second that violate an expectation.",
                    rate_of(BY, "tidemill_pipeline_broken_rows_total", OF_PIPELINE),
                    LEGEND,
                ),
            ),
        ),
        PanelRow(
            "Micro-batches and state",
            (
                graph(
                    "Last micro-batch",
                    "Duration of the last micro-batch with rows.",
                    max_of(BY, "tidemill_pipeline_last_batch_seconds", OF_PIPELINE),
                    LEGEND,
                    "s",
                ),
                graph(
                    "Micro-batches, mean",
                    "Mean duration of the micro-batches with rows.",
                    f"{rate_of(BY, 'tidemill_pipeline_batch_seconds_total', OF_PIPELINE)}"
                    f" / ({rate_of(BY, 'tidemill_pipeline_batches_total', OF_PIPELINE)} > 0)",
                    LEGEND,
                    "s",
                ),
                graph(
                    "Micro-batches",
                    "Micro-batches with rows per second.",
                    rate_of(BY, "tidemill_pipeline_batches_total", OF_PIPELINE),
                    LEGEND,
                    "cps",
                ),
                graph(
                    "Rows of the state",
                    "Rows that groups, joins and windows keep.",
                    max_of(BY, "tidemill_pipeline_state_rows", OF_PIPELINE),
                    LEGEND,
                ),
                graph(
                    "Memory of the state",
                    "Memory that groups, joins and windows use.",
                    max_of(BY, "tidemill_pipeline_state_bytes", OF_PIPELINE),
                    LEGEND,
                    "bytes",
                ),
            ),
        ),
    ),
)
