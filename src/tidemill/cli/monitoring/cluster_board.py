"""The dashboard of a cluster: what needs attention first, then traffic, replication and the brokers."""

from tidemill.cli.monitoring.expressions import (
    ANY,
    RATE,
    SOME,
    graph,
    max_of,
    min_of,
    number,
    quantile_of,
    rate_of,
    sum_of,
)
from tidemill.cli.monitoring.grafana import BROKER, CLUSTER, SCOPE, Board, Panel, PanelQuery, PanelRow, Thresholds

CLUSTER_BOARD = Board(
    "cluster",
    "Tidemill: cluster",
    "Brokers, replication, requests, disks and clocks.",
    (CLUSTER, BROKER),
    (
        PanelRow(
            "What needs attention",
            (
                number(
                    "Brokers",
                    "Brokers that Prometheus can scrape.",
                    f"count(tidemill_build_info{{{SCOPE}}})",
                    Thresholds(),
                ),
                number(
                    "Controllers",
                    "Each cluster has one.",
                    f"sum(tidemill_controller{{{SCOPE}}})",
                    Thresholds(),
                ),
                number(
                    "Offline partitions",
                    "Partitions without a leader.",
                    f"sum(tidemill_offline_partitions{{{SCOPE}}})",
                    ANY,
                ),
                number(
                    "Under min ISR",
                    "Partitions that refuse acks=all.",
                    f"sum(tidemill_under_min_isr_partitions{{{SCOPE}}})",
                    ANY,
                ),
                number(
                    "Under-replicated",
                    "Partitions with a replica that is not in sync.",
                    f"sum(tidemill_under_replicated_partitions{{{SCOPE}}})",
                    SOME,
                ),
                number(
                    "Failed partitions",
                    "Partitions that cannot be used.",
                    f"sum(tidemill_partitions_failed{{{SCOPE}}})",
                    ANY,
                ),
            ),
        ),
        PanelRow(
            "Reasons",
            (
                Panel(
                    "Degraded",
                    "Brokers that do less than they should, by reason. /health on the broker says more.",
                    (
                        PanelQuery(
                            f"{max_of('instance, reason', 'tidemill_degraded', SCOPE)} > 0", "{{instance}} {{reason}}"
                        ),
                    ),
                    width=12,
                    height=6,
                    thresholds=SOME,
                ),
                Panel(
                    "Disk used",
                    "Share of the disk with the data directory. A full disk rejects records and loses none.",
                    (
                        PanelQuery(
                            f"1 - {min_of('tidemill_disk_free_bytes')} / {min_of('tidemill_disk_size_bytes')}",
                            "{{instance}}",
                        ),
                    ),
                    "percentunit",
                    width=12,
                    height=6,
                    thresholds=Thresholds(0.85, 0.95),
                ),
            ),
        ),
        PanelRow(
            "Traffic",
            (
                Panel(
                    "Bytes in",
                    "Bytes of batches that producers have sent, by broker.",
                    (PanelQuery(rate_of("instance", "tidemill_topic_bytes_in_total", SCOPE), "{{instance}}"),),
                    "Bps",
                    is_stacked=True,
                ),
                Panel(
                    "Bytes out",
                    "Bytes of batches that consumers have got, by broker.",
                    (PanelQuery(rate_of("instance", "tidemill_topic_bytes_out_total", SCOPE), "{{instance}}"),),
                    "Bps",
                    is_stacked=True,
                ),
                Panel(
                    "Records in",
                    "Records that were appended, by broker.",
                    (PanelQuery(rate_of("instance", "tidemill_topic_records_in_total", SCOPE), "{{instance}}"),),
                    "cps",
                    is_stacked=True,
                ),
            ),
        ),
        PanelRow(
            "Requests",
            (
                Panel(
                    "Requests",
                    "Requests by server and API.",
                    (PanelQuery(rate_of("server, api", "tidemill_requests_total", SCOPE), "{{server}} {{api}}"),),
                    "reqps",
                ),
                Panel(
                    "Errors",
                    "Responses with an error. Refusals that a protocol expects are not counted.",
                    (
                        PanelQuery(
                            rate_of("server, api, error", "tidemill_request_errors_total", SCOPE),
                            "{{server}} {{api}} {{error}}",
                        ),
                    ),
                    "cps",
                ),
                Panel(
                    "Latency, 99 %",
                    "99 % of the requests were answered within this time. Fetch waits for records on purpose.",
                    (
                        PanelQuery(
                            quantile_of("0.99", "server, api", "tidemill_request_duration_seconds", SCOPE),
                            "{{server}} {{api}}",
                        ),
                    ),
                    "s",
                ),
                Panel(
                    "Connections",
                    "Open connections by broker and server.",
                    (
                        PanelQuery(
                            f"sum by (instance, server) (tidemill_connections{{{SCOPE}}})", "{{instance}} {{server}}"
                        ),
                    ),
                ),
                Panel(
                    "Connections opened",
                    "Many new connections cost more than many open ones.",
                    (
                        PanelQuery(
                            rate_of("instance, server", "tidemill_connections_opened_total", SCOPE),
                            "{{instance}} {{server}}",
                        ),
                    ),
                    "cps",
                ),
                graph(
                    "Requests in flight",
                    "Requests that are being served. Fetches that wait for records are among them.",
                    sum_of("instance, server", "tidemill_requests_in_flight", SCOPE),
                    "{{instance}} {{server}}",
                ),
                graph(
                    "Producers and consumers",
                    "Connections of clients that have produced or fetched records.",
                    sum_of("server, type", "tidemill_channels", SCOPE),
                    "{{server}} {{type}}",
                ),
                Panel(
                    "Throttled responses",
                    "Responses to clients above a quota.",
                    (PanelQuery(rate_of("quota", "tidemill_throttled_responses_total", SCOPE), "{{quota}}"),),
                    "cps",
                ),
            ),
        ),
        PanelRow(
            "Network",
            (
                graph(
                    "Bytes by partner",
                    "Bytes of requests and responses, by the other end and the direction.",
                    rate_of("partner, direction", "tidemill_network_bytes_total", SCOPE),
                    "{{partner}} {{direction}}",
                    "Bps",
                ),
                graph(
                    "Round trips, 99 %",
                    "Round trips to clients and consumers of timelines, to other brokers and to the coordination.",
                    quantile_of("0.99", "partner", "tidemill_network_latency_seconds", SCOPE),
                    "{{partner}}",
                    "s",
                ),
                graph(
                    "Connections closed for an error",
                    "Invalid requests and logins of producers and consumers.",
                    rate_of("server, type", "tidemill_channel_errors_total", SCOPE),
                    "{{server}} {{type}}",
                    "cps",
                ),
            ),
        ),
        PanelRow(
            "Databases",
            (
                graph(
                    "Queries",
                    "Queries to the databases of timelines and streams.",
                    rate_of("store, op, type", "tidemill_storage_queries_total", SCOPE),
                    "{{store}} {{op}} {{type}}",
                    "cps",
                ),
                graph(
                    "Query time, 99 %",
                    "Time from a query to its result, with the wait for a connection.",
                    quantile_of("0.99", "store, op, type", "tidemill_storage_query_duration_seconds", SCOPE),
                    "{{store}} {{op}} {{type}}",
                    "s",
                ),
                graph(
                    "Failed queries",
                    "Queries that a database did not answer.",
                    rate_of("store, op, reason", "tidemill_storage_query_errors_total", SCOPE),
                    "{{store}} {{op}} {{reason}}",
                    "cps",
                ),
            ),
        ),
        PanelRow(
            "Replication",
            (
                Panel(
                    "Changes of in-sync sets",
                    "Replicas that fell behind (shrinks), and that caught up (expands).",
                    (
                        PanelQuery(rate_of("instance", "tidemill_isr_shrinks_total", SCOPE), "{{instance}} shrinks"),
                        PanelQuery(rate_of("instance", "tidemill_isr_expands_total", SCOPE), "{{instance}} expands"),
                    ),
                    "cps",
                ),
                graph(
                    "Leaders",
                    "Partitions that each broker leads. tidemill cluster rebalance evens them out.",
                    sum_of("instance", "tidemill_partitions_led", SCOPE),
                    "{{instance}}",
                ),
                Panel(
                    "Replica lag",
                    "Maximum number of records that a follower lacks.",
                    (
                        PanelQuery(
                            f"max by (instance, follower) (tidemill_replica_lag_records{{{SCOPE}}})",
                            "{{instance}} to {{follower}}",
                        ),
                    ),
                ),
                Panel(
                    "Replica lag in time",
                    "Maximum time since a follower had every record.",
                    (
                        PanelQuery(
                            f"max by (instance, follower) (tidemill_replica_lag_seconds{{{SCOPE}}})",
                            "{{instance}} to {{follower}}",
                        ),
                    ),
                    "s",
                ),
                Panel(
                    "Partitions",
                    "Partitions by broker.",
                    (PanelQuery(f"sum by (instance) (tidemill_partitions{{{SCOPE}}})", "{{instance}}"),),
                ),
            ),
        ),
        PanelRow(
            "Broker",
            (
                Panel(
                    "Event loop delay, 99 %",
                    "How late timers fire. A broker above 0.25 s has too much work.",
                    (
                        PanelQuery(
                            quantile_of("0.99", "instance", "tidemill_event_loop_delay_seconds", SCOPE), "{{instance}}"
                        ),
                    ),
                    "s",
                    thresholds=Thresholds(0.05, 0.25),
                ),
                Panel(
                    "Flush time, 99 %",
                    "Producers with acks=all wait for a flush of the disk.",
                    (
                        PanelQuery(
                            quantile_of("0.99", "instance", "tidemill_fsync_duration_seconds", SCOPE), "{{instance}}"
                        ),
                    ),
                    "s",
                    thresholds=Thresholds(0.1, 0.5),
                ),
                Panel(
                    "Log size",
                    "Bytes of all logs of a broker.",
                    (PanelQuery(f"sum by (instance) (tidemill_log_bytes{{{SCOPE}}})", "{{instance}}"),),
                    "bytes",
                    is_stacked=True,
                ),
                Panel(
                    "Memory",
                    "Resident memory of the process.",
                    (PanelQuery(f"process_resident_memory_bytes{{{SCOPE}}}", "{{instance}}"),),
                    "bytes",
                ),
                Panel(
                    "Processor",
                    "Processor time per second: 1 is one processor.",
                    (PanelQuery(f"rate(process_cpu_seconds_total{{{SCOPE}}}{RATE})", "{{instance}}"),),
                ),
                Panel(
                    "Open files",
                    "Open files and sockets of the process.",
                    (PanelQuery(f"process_open_fds{{{SCOPE}}}", "{{instance}}"),),
                ),
                Panel(
                    "Background tasks",
                    "Restarts of background tasks, and jobs that failed.",
                    (
                        PanelQuery(
                            rate_of("instance, task", "tidemill_task_restarts_total", SCOPE), "{{instance}} {{task}}"
                        ),
                        PanelQuery(
                            rate_of("instance, job", "tidemill_job_failures_total", SCOPE), "{{instance}} {{job}}"
                        ),
                    ),
                    "cps",
                ),
                Panel(
                    "Clock in doubt",
                    "1 while a broker does not trust its clock, by reason.",
                    (
                        PanelQuery(
                            f"max by (instance, reason) (tidemill_clock_in_doubt{{{SCOPE}}}) > 0",
                            "{{instance}} {{reason}}",
                        ),
                    ),
                    thresholds=Thresholds(critical=1),
                ),
                Panel(
                    "Versions",
                    "The version of each broker.",
                    (PanelQuery(f"tidemill_build_info{{{SCOPE}}}"),),
                    kind="table",
                ),
            ),
        ),
    ),
)
