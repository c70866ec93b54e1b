"""The dashboard of consumer groups."""

from tidemill.cli.monitoring.expressions import rate_of, sum_of
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

GROUP = BoardVariable("group", "Group", "label_values(tidemill_group_members{" + SCOPE + "}, group)")
OF_GROUP = SCOPE + ',group=~"$group"'

GROUPS_BOARD = Board(
    "groups",
    "Tidemill: consumer groups",
    "Lag in records and in seconds, members and states of consumer groups.",
    (CLUSTER, BROKER, GROUP),
    (
        PanelRow(
            "Lag",
            (
                Panel(
                    "Unread records",
                    "Transaction markers and aborted records do not count: a group at the end has 0.",
                    (
                        PanelQuery(
                            f"sum by (group, topic) (tidemill_group_lag_records{{{OF_GROUP}}})", "{{group}} {{topic}}"
                        ),
                    ),
                    width=12,
                ),
                Panel(
                    "Age of the oldest unread record",
                    "A line that rises by 1 s each second belongs to a group that commits nothing.",
                    (
                        PanelQuery(
                            f"max by (group, topic) (tidemill_group_lag_seconds{{{OF_GROUP}}})", "{{group}} {{topic}}"
                        ),
                    ),
                    "s",
                    width=12,
                    thresholds=Thresholds(60, 300),
                ),
                Panel(
                    "Slowest partition",
                    "Unread records of the partition with the most of them.",
                    (
                        PanelQuery(
                            f"max by (group, topic) (tidemill_group_lag_records_max{{{OF_GROUP}}})",
                            "{{group}} {{topic}}",
                        ),
                    ),
                    width=12,
                ),
                Panel(
                    "Largest lags",
                    "The ten groups with the most unread records.",
                    (
                        PanelQuery(
                            f"topk(10, sum by (group, topic) (tidemill_group_lag_records{{{OF_GROUP}}}))",
                            "{{group}} {{topic}}",
                        ),
                    ),
                    kind="bargauge",
                    width=12,
                ),
            ),
        ),
        PanelRow(
            "Members",
            (
                Panel(
                    "Members",
                    "Members of each group.",
                    (PanelQuery(f"sum by (group) (tidemill_group_members{{{OF_GROUP}}})", "{{group}}"),),
                    width=12,
                ),
                Panel(
                    "States",
                    "How many groups are in each state. Many groups that rebalance are a problem.",
                    (PanelQuery(sum_of("state", "tidemill_groups", SCOPE), "{{state}}"),),
                    width=12,
                    is_stacked=True,
                ),
                Panel(
                    "Rebalances",
                    "Generations and epochs of groups that began, by broker. Each stops the members for a moment.",
                    (PanelQuery(rate_of("instance", "tidemill_group_rebalances_total", SCOPE), "{{instance}}"),),
                    "cps",
                    width=12,
                ),
                Panel(
                    "Commits",
                    "Commits of offsets that are durable, by broker.",
                    (PanelQuery(rate_of("instance", "tidemill_offset_commits_total", SCOPE), "{{instance}}"),),
                    "cps",
                    width=12,
                ),
            ),
        ),
    ),
)
