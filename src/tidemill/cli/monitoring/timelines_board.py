"""The dashboard of timelines."""

from tidemill.cli.monitoring.expressions import RATE, graph, max_of, quantile_of, rate_of, sum_of
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

TIMELINE = BoardVariable("timeline", "Timeline", "label_values(tidemill_timeline_consumers{" + SCOPE + "}, timeline)")
OF_TIMELINE = SCOPE + ',timeline=~"$timeline"'

TIMELINES_BOARD = Board(
    "timelines",
    "Tidemill: timelines",
    "Lateness, leases, consumers and dead letters of timelines.",
    (CLUSTER, BROKER, TIMELINE),
    (
        PanelRow(
            "Delivery",
            (
                Panel(
                    "Lateness",
                    "Time from due time to first delivery, 50 % and 99 %. Messages are never early.",
                    (
                        PanelQuery(
                            quantile_of("0.5", "timeline", "tidemill_timeline_lateness_seconds", OF_TIMELINE),
                            "{{timeline}} 50 %",
                        ),
                        PanelQuery(
                            quantile_of("0.99", "timeline", "tidemill_timeline_lateness_seconds", OF_TIMELINE),
                            "{{timeline}} 99 %",
                        ),
                    ),
                    "s",
                    width=12,
                    thresholds=Thresholds(0.1, 1),
                ),
                Panel(
                    "Lateness in detail",
                    "How many first deliveries were late by how much.",
                    (
                        PanelQuery(
                            f"sum by (le) (increase(tidemill_timeline_lateness_seconds_bucket{{{OF_TIMELINE}}}{RATE}))",
                            "{{le}}",
                        ),
                    ),
                    "s",
                    "heatmap",
                    width=12,
                ),
                Panel(
                    "Messages",
                    "Messages by operation.",
                    (
                        PanelQuery(
                            rate_of("timeline, op", "tidemill_timeline_messages_total", OF_TIMELINE),
                            "{{timeline}} {{op}}",
                        ),
                    ),
                    "cps",
                    width=12,
                ),
                Panel(
                    "Bytes delivered",
                    "Bytes of the bodies that were leased.",
                    (
                        PanelQuery(
                            rate_of("timeline", "tidemill_timeline_leased_bytes_total", OF_TIMELINE), "{{timeline}}"
                        ),
                    ),
                    "Bps",
                    width=12,
                ),
            ),
        ),
        PanelRow(
            "What waits",
            (
                graph(
                    "Due and not leased",
                    "Messages that consumers could have now. Scale consumers by this number.",
                    max_of("timeline", "tidemill_timeline_available_messages", OF_TIMELINE),
                    "{{timeline}}",
                ),
                graph(
                    "Due soon",
                    "Messages that become due within a time, with those of shorter times.",
                    max_of("timeline, within", "tidemill_timeline_waiting_messages", OF_TIMELINE),
                    "{{timeline}} {{within}}",
                ),
                graph(
                    "Leases",
                    "Messages under a live lease, at any broker.",
                    max_of("timeline", "tidemill_timeline_active_leases", OF_TIMELINE),
                    "{{timeline}}",
                ),
                graph(
                    "Operations on leases",
                    "A lease expires when no consumer settles it in time: its consumer is slow or gone.",
                    rate_of("timeline, op", "tidemill_timeline_leases_total", OF_TIMELINE),
                    "{{timeline}} {{op}}",
                    "cps",
                ),
                graph(
                    "Attempts, 99 %",
                    "The number of the attempt that a lease was. 1 is a first delivery.",
                    quantile_of("0.99", "timeline", "tidemill_timeline_delivery_attempts", OF_TIMELINE),
                    "{{timeline}}",
                ),
                graph(
                    "Scheduled in the past",
                    "Messages that were due more than a second before they were scheduled. They do not count as late.",
                    rate_of("timeline", "tidemill_timeline_past_due_messages_total", OF_TIMELINE),
                    "{{timeline}}",
                    "cps",
                ),
            ),
        ),
        PanelRow(
            "Consumers and problems",
            (
                Panel(
                    "Consumers",
                    "Connected consumers.",
                    (PanelQuery(f"sum by (timeline) (tidemill_timeline_consumers{{{OF_TIMELINE}}})", "{{timeline}}"),),
                ),
                Panel(
                    "Dead letters",
                    "Messages whose attempts were used up.",
                    (
                        PanelQuery(
                            rate_of("timeline", "tidemill_timeline_messages_total", OF_TIMELINE + ',op="dead"'),
                            "{{timeline}}",
                        ),
                    ),
                    "cps",
                    thresholds=Thresholds(critical=0.001),
                ),
                Panel(
                    "Rejected operations",
                    "A StaleLease is an operation of a consumer that has lost its lease.",
                    (
                        PanelQuery(
                            rate_of("timeline, reason", "tidemill_timeline_errors_total", OF_TIMELINE),
                            "{{timeline}} {{reason}}",
                        ),
                    ),
                    "cps",
                ),
                Panel(
                    "State",
                    "1 for the state that a broker's timelines are in.",
                    (
                        PanelQuery(
                            f"max by (instance, state) (tidemill_timelines_state{{{SCOPE}}}) > 0",
                            "{{instance}} {{state}}",
                        ),
                    ),
                ),
                Panel(
                    "Timer delay, 99 %",
                    "How late the timers of the delivery fired.",
                    (
                        PanelQuery(
                            quantile_of("0.99", "timeline", "tidemill_timeline_timer_delay_seconds", OF_TIMELINE),
                            "{{timeline}}",
                        ),
                    ),
                    "s",
                ),
                Panel(
                    "Clock difference",
                    "Difference of other clocks from the broker's.",
                    (
                        PanelQuery(
                            f"max by (instance, target) (tidemill_clock_drift_seconds{{{SCOPE}}})",
                            "{{instance}} {{target}}",
                        ),
                    ),
                    "s",
                    can_be_negative=True,
                ),
            ),
        ),
        PanelRow(
            "Journal of replicated timelines",
            (
                graph(
                    "Entries that an index lacks",
                    "Committed entries of the journal that the index of a broker lacks. A follower that lacks many"
                    " takes longer to become the leader.",
                    sum_of("instance", "tidemill_timeline_index_lag_entries", SCOPE),
                    "{{instance}}",
                ),
                graph(
                    "Journal size",
                    "Size of the journal on each broker. It shrinks when a leader has written all messages to its end.",
                    sum_of("instance", "tidemill_timeline_journal_bytes", SCOPE),
                    "{{instance}}",
                    "bytes",
                ),
                graph(
                    "Append time, 99 %",
                    "Time until the entries of a change were durable.",
                    quantile_of("0.99", "instance", "tidemill_timeline_journal_append_seconds", SCOPE),
                    "{{instance}}",
                    "s",
                ),
                Panel(
                    "Snapshots and problems",
                    "Snapshots of the journal, indexes built again, and changes that failed.",
                    (
                        PanelQuery(
                            rate_of("instance", "tidemill_timeline_journal_snapshot_seconds_count", SCOPE),
                            "{{instance}} snapshots",
                        ),
                        PanelQuery(
                            rate_of("instance, reason", "tidemill_timeline_index_rebuilds_total", SCOPE),
                            "{{instance}} rebuilt: {{reason}}",
                        ),
                        PanelQuery(
                            rate_of("instance, error", "tidemill_timeline_journal_append_failures_total", SCOPE),
                            "{{instance}} {{error}}",
                        ),
                    ),
                    "cps",
                ),
            ),
        ),
    ),
)
