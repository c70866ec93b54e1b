"""The dashboard of share groups."""

from tidemill.cli.monitoring.expressions import max_of, rate_of, sum_of
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

_GROUP = BoardVariable("group", "Group", "label_values(tidemill_share_lag_records{" + SCOPE + "}, group)")
_SCOPE = SCOPE + ',group=~"$group"'
_PAIR, _LEGEND = "group, topic", "{{group}} {{topic}}"


def _panel(title: str, description: str, expr: str, legend: str, unit: str = "short") -> Panel:
    return Panel(title, description, (PanelQuery(expr, legend),), unit, width=12)


SHARES_BOARD = Board(
    "shares",
    "Tidemill: share groups",
    "Lag, locks, retries and results of deliveries of share groups.",
    (CLUSTER, BROKER, _GROUP),
    (
        PanelRow(
            "Work",
            (
                _panel(
                    "Records not done",
                    "From the first record that is not done to the end of the topic, without those done in between.",
                    sum_of(_PAIR, "tidemill_share_lag_records", _SCOPE),
                    _LEGEND,
                ),
                _panel(
                    "Members",
                    "Members of each group. A group with lag needs at least one.",
                    f"sum by (group) (tidemill_group_members{{{_SCOPE}}})"
                    f" and on (group) sum by (group) (tidemill_share_lag_records{{{_SCOPE}}})",
                    "{{group}}",
                ),
                _panel(
                    "Deliveries",
                    "Records that members got, by the number of the delivery. Later ones are repetitions.",
                    rate_of("group, attempt", "tidemill_share_deliveries_total", _SCOPE),
                    "{{group}} delivery {{attempt}}",
                    "cps",
                ),
                _panel(
                    "Results",
                    "How deliveries ended. expired: the member did not acknowledge the record in time.",
                    rate_of("group, result", "tidemill_share_delivery_results_total", _SCOPE),
                    "{{group}} {{result}}",
                    "cps",
                ),
            ),
        ),
        PanelRow(
            "Locks and retries",
            (
                _panel(
                    "Records in flight",
                    "Records that a member has a lock of, that are available again, or that wait for their retry.",
                    sum_of("group, state", "tidemill_share_records", _SCOPE),
                    "{{group}} {{state}}",
                ),
                Panel(
                    "Oldest lock",
                    "A member that renews nothing loses its lock after share.record.lock.duration.ms.",
                    (PanelQuery(max_of(_PAIR, "tidemill_share_oldest_lock_seconds", _SCOPE), _LEGEND),),
                    "s",
                    width=12,
                    thresholds=Thresholds(60, 300),
                ),
                _panel(
                    "Records given up",
                    "Records that the group never gets again: rejected, or delivered too often.",
                    rate_of(_PAIR, "tidemill_share_archived_records_total", _SCOPE),
                    _LEGEND,
                    "cps",
                ),
                _panel(
                    "Partitions without a known lag",
                    "No member has fetched from them yet, or their share coordinator has no replica of them.",
                    sum_of(_PAIR, "tidemill_share_lag_unknown_partitions", _SCOPE),
                    _LEGEND,
                ),
            ),
        ),
    ),
)
