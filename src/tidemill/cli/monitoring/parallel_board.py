"""The dashboard of parallel consumers. Their metrics come from the programs that run them, not from a broker."""

from tidemill.cli.monitoring.expressions import rate_of
from tidemill.cli.monitoring.grafana import Board, BoardVariable, Panel, PanelQuery, PanelRow, Thresholds

_PROGRAM = BoardVariable("instance", "Program", "label_values(tidemill_parallel_received_total, instance)")
_GROUP = BoardVariable("group", "Group", 'label_values(tidemill_parallel_received_total{instance=~"$instance"}, group)')
_SCOPE = 'instance=~"$instance",group=~"$group"'


def _rates(*queries: tuple[str, str]) -> tuple[PanelQuery, ...]:
    return tuple(PanelQuery(rate_of("group", counter, _SCOPE), f"{{{{group}}}} {what}") for counter, what in queries)


def _sums(*queries: tuple[str, str]) -> tuple[PanelQuery, ...]:
    return tuple(
        PanelQuery(f"sum by (group) ({gauge}{{{_SCOPE}}})", f"{{{{group}}}} {what}") for gauge, what in queries
    )


PARALLEL_BOARD = Board(
    "parallel",
    "Tidemill: parallel consumers",
    "Throughput, waiting records, failures and commits of parallel consumers.",
    (_PROGRAM, _GROUP),
    (
        PanelRow(
            "Work",
            (
                Panel(
                    "Records",
                    "Records received, and records whose handler has ended.",
                    _rates(("tidemill_parallel_received_total", "in"), ("tidemill_parallel_completed_total", "done")),
                    "cps",
                ),
                Panel(
                    "Waiting and in flight",
                    "Many waiting records: more workers help. None: the topic is the limit.",
                    _sums(("tidemill_parallel_waiting", "waiting"), ("tidemill_parallel_in_flight", "in flight")),
                ),
                Panel(
                    "Time of a handler",
                    "Mean time that the handler takes for a record.",
                    (
                        PanelQuery(
                            f"{rate_of('group', 'tidemill_parallel_handler_seconds_total', _SCOPE)}"
                            f" / {rate_of('group', 'tidemill_parallel_completed_total', _SCOPE)}",
                            "{{group}}",
                        ),
                    ),
                    "s",
                ),
            ),
        ),
        PanelRow(
            "Problems and commits",
            (
                Panel(
                    "Failures",
                    "Handlers that failed, records tried again, and records given up.",
                    _rates(
                        ("tidemill_parallel_failures_total", "failed"),
                        ("tidemill_parallel_retries_total", "tried again"),
                        ("tidemill_parallel_dead_letters_total", "dead letters"),
                    ),
                    "cps",
                    thresholds=Thresholds(warning=0.1),
                ),
                Panel(
                    "Beyond a gap",
                    "Records that are complete, while an earlier one of their partition is not.",
                    _sums(("tidemill_parallel_beyond_gap", "records")),
                ),
                Panel(
                    "Commits",
                    "Commits, and results that arrived after their partition was lost.",
                    _rates(
                        ("tidemill_parallel_commits_total", "commits"), ("tidemill_parallel_dropped_total", "dropped")
                    ),
                    "cps",
                ),
            ),
        ),
    ),
)
