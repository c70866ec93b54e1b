"""The dashboard of topics."""

from tidemill.cli.monitoring.expressions import graph, rate_of, sum_of
from tidemill.cli.monitoring.grafana import BROKER, CLUSTER, SCOPE, Board, BoardVariable, Panel, PanelQuery, PanelRow

TOPIC = BoardVariable("topic", "Topic", "label_values(tidemill_partitions{" + SCOPE + "}, topic)")
OF_TOPIC = SCOPE + ',topic=~"$topic"'

TOPIC_BOARD = Board(
    "topic",
    "Tidemill: topics",
    "Traffic, size and replicas of topics.",
    (CLUSTER, BROKER, TOPIC),
    (
        PanelRow(
            "Traffic",
            (
                Panel(
                    "Records in",
                    "Records that producers have appended.",
                    (PanelQuery(rate_of("topic", "tidemill_topic_records_in_total", OF_TOPIC), "{{topic}}"),),
                    "cps",
                ),
                Panel(
                    "Bytes in",
                    "Bytes of batches appended.",
                    (PanelQuery(rate_of("topic", "tidemill_topic_bytes_in_total", OF_TOPIC), "{{topic}}"),),
                    "Bps",
                ),
                Panel(
                    "Bytes out",
                    "Bytes of batches sent to consumers.",
                    (PanelQuery(rate_of("topic", "tidemill_topic_bytes_out_total", OF_TOPIC), "{{topic}}"),),
                    "Bps",
                ),
            ),
        ),
        PanelRow(
            "Errors and commands",
            (
                graph(
                    "Errors",
                    "Batches that were rejected (produce), and reads of a partition that failed (fetch).",
                    rate_of("topic, operation, error", "tidemill_topic_errors_total", OF_TOPIC),
                    "{{topic}} {{operation}} {{error}}",
                    "cps",
                ),
                Panel(
                    "Commands",
                    "Commands of clients that change topics, of all topics.",
                    (
                        PanelQuery(rate_of("operation", "tidemill_topic_commands_total", SCOPE), "{{operation}}"),
                        PanelQuery(
                            rate_of("operation, error", "tidemill_topic_command_errors_total", SCOPE),
                            "{{operation}} {{error}}",
                        ),
                    ),
                    "cps",
                ),
                Panel(
                    "Scheduled records",
                    "Records that wait for their time, and those that are due and not delivered yet.",
                    (
                        PanelQuery(sum_of("topic", "tidemill_scheduled_records_waiting", OF_TOPIC), "{{topic}}"),
                        PanelQuery(sum_of("topic", "tidemill_scheduled_records_late", OF_TOPIC), "{{topic}} late"),
                    ),
                ),
            ),
        ),
        PanelRow(
            "Storage",
            (
                Panel(
                    "Log size",
                    "Bytes of the logs, with all replicas.",
                    (PanelQuery(f"sum by (topic) (tidemill_log_bytes{{{OF_TOPIC}}})", "{{topic}}"),),
                    "bytes",
                ),
                Panel(
                    "Growth",
                    "Bytes per second that logs grow by; below 0 where retention removes more.",
                    (PanelQuery(f"sum by (topic) (deriv(tidemill_log_bytes{{{OF_TOPIC}}}[10m]))", "{{topic}}"),),
                    "Bps",
                    can_be_negative=True,
                ),
                Panel(
                    "Partitions by broker",
                    "Replicas that each broker carries.",
                    (PanelQuery(f"sum by (instance) (tidemill_partitions{{{OF_TOPIC}}})", "{{instance}}"),),
                ),
            ),
        ),
        PanelRow(
            "Groups",
            (
                Panel(
                    "Unread records by group",
                    "Groups that read these topics, and how many records each has not read.",
                    (
                        PanelQuery(
                            f"sum by (group, topic) (tidemill_group_lag_records{{{OF_TOPIC}}})", "{{group}} {{topic}}"
                        ),
                    ),
                    width=12,
                ),
                Panel(
                    "Age of the oldest unread record",
                    "How long the slowest partition of each group has waited.",
                    (
                        PanelQuery(
                            f"max by (group, topic) (tidemill_group_lag_seconds{{{OF_TOPIC}}})", "{{group}} {{topic}}"
                        ),
                    ),
                    "s",
                    width=12,
                ),
            ),
        ),
    ),
)
