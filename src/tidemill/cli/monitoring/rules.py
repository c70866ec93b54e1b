"""The rules of Prometheus: what is computed in advance, and when to alert whom about what.

An alert says what is wrong, what follows from it, and what to do next. Its thresholds are in its expression, because
operators change them in the file. `JOB` is the scrape job of the sample configuration.
"""

from typing import Literal, NamedTuple

JOB = "tidemill"
READERS = '{group!~"tidemill-.+"}'
"""Leaves out the groups in which topic sinks keep their ledger, whose offsets are not positions. Pipelines have alerts
of their own."""
Severity = Literal["critical", "warning"]


class RecordedSeries(NamedTuple):
    """A series that Prometheus computes in advance."""

    record: str
    expr: str


class Alert(NamedTuple):
    """One alert. `lasting` is how long its expression must hold."""

    name: str
    expr: str
    lasting: str
    severity: Severity
    summary: str
    description: str
    next_step: str


def _p99(histogram: str, *by: str) -> str:
    return f"histogram_quantile(0.99, sum by (le, {', '.join(by)}) (rate({histogram}_bucket[5m])))"


RECORDINGS = (
    RecordedSeries(
        "tidemill:topic_records_in:rate5m", "sum by (cluster, topic) (rate(tidemill_topic_records_in_total[5m]))"
    ),
    RecordedSeries(
        "tidemill:topic_bytes_in:rate5m", "sum by (cluster, topic) (rate(tidemill_topic_bytes_in_total[5m]))"
    ),
    RecordedSeries(
        "tidemill:topic_bytes_out:rate5m", "sum by (cluster, topic) (rate(tidemill_topic_bytes_out_total[5m]))"
    ),
    RecordedSeries("tidemill:group_lag_records:sum", "sum by (cluster, group, topic) (tidemill_group_lag_records)"),
    RecordedSeries("tidemill:group_lag_seconds:max", "max by (cluster, group, topic) (tidemill_group_lag_seconds)"),
    RecordedSeries(
        "tidemill:pipeline_lag_records:max", "max by (cluster, pipeline, query) (tidemill_pipeline_lag_records)"
    ),
    RecordedSeries("tidemill:requests:rate5m", "sum by (cluster, instance) (rate(tidemill_requests_total[5m]))"),
    RecordedSeries(
        "tidemill:request_errors:rate5m", "sum by (cluster, instance) (rate(tidemill_request_errors_total[5m]))"
    ),
    RecordedSeries(
        "tidemill:request_duration_seconds:p99_5m",
        _p99("tidemill_request_duration_seconds", "cluster", "instance", "server", "api"),
    ),
    RecordedSeries(
        "tidemill:fsync_duration_seconds:p99_5m", _p99("tidemill_fsync_duration_seconds", "cluster", "instance")
    ),
    RecordedSeries(
        "tidemill:event_loop_delay_seconds:p99_5m", _p99("tidemill_event_loop_delay_seconds", "cluster", "instance")
    ),
    RecordedSeries(
        "tidemill:timeline_lateness_seconds:p99_5m", _p99("tidemill_timeline_lateness_seconds", "cluster", "timeline")
    ),
)

ALERTS = (
    Alert(
        "TidemillBrokerDown",
        f'up{{job="{JOB}"}} == 0',
        "1m",
        "critical",
        "Broker {{ $labels.instance }} is down",
        "Prometheus cannot scrape {{ $labels.instance }}.",
        "Look at the process and its log; /health/ready on the broker says what it waits for.",
    ),
    Alert(
        "TidemillOfflinePartitions",
        "sum by (cluster) (tidemill_offline_partitions) > 0",
        "1m",
        "critical",
        "{{ $value }} partitions have no leader",
        "Clients can neither write to nor read from these partitions of cluster {{ $labels.cluster }}.",
        "Start the brokers that have their replicas: tidemill cluster status names them.",
    ),
    Alert(
        "TidemillNoController",
        "sum by (cluster) (tidemill_controller) == 0",
        "1m",
        "critical",
        "Cluster {{ $labels.cluster }} has no controller",
        "No broker is the controller, so leaders of lost brokers are not replaced.",
        "Look at the coordination (etcd) and at the logs of the brokers with the role overseer.",
    ),
    Alert(
        "TidemillMultipleControllers",
        "sum by (cluster) (tidemill_controller) > 1",
        "1m",
        "critical",
        "Cluster {{ $labels.cluster }} has {{ $value }} controllers",
        "Some brokers have another view of the coordination.",
        "Check that all brokers have the same --coordination, and that etcd has one leader.",
    ),
    Alert(
        "TidemillPartitionsFailed",
        "sum by (cluster, instance) (tidemill_partitions_failed) > 0",
        "1m",
        "critical",
        "{{ $value }} partitions of {{ $labels.instance }} cannot be used",
        "Their disk failed, or they could not be opened.",
        "Read the log of the broker, check the disk, then restart the broker; tidemill repair for a damaged directory.",
    ),
    Alert(
        "TidemillUnderMinIsr",
        "sum by (cluster, instance) (tidemill_under_min_isr_partitions) > 0",
        "1m",
        "critical",
        "{{ $value }} partitions led by {{ $labels.instance }} refuse acks=all",
        "Fewer replicas are in sync than min.insync.replicas.",
        "Start or repair the brokers of the missing replicas: tidemill cluster status.",
    ),
    Alert(
        "TidemillUnderReplicatedPartitions",
        "sum by (cluster, instance) (tidemill_under_replicated_partitions) > 0",
        "5m",
        "warning",
        "{{ $value }} partitions led by {{ $labels.instance }} lack a replica",
        "If another broker is lost, these partitions may lose their last copy.",
        "Start the missing broker; if it runs, compare tidemill_replica_lag_seconds and the network.",
    ),
    Alert(
        "TidemillUncleanElection",
        "sum by (cluster) (increase(tidemill_unclean_elections_total[1h])) > 0",
        "0m",
        "critical",
        "A replica that was not in sync became the leader",
        "Records that only the old leader had are lost.",
        "Compare the data of producers with the topic; unclean.leader.election.enable=false prevents it.",
    ),
    Alert(
        "TidemillDiskNearlyFull",
        "min by (cluster, instance) (tidemill_disk_free_bytes / tidemill_disk_size_bytes) < 0.15",
        "5m",
        "warning",
        "The disk of {{ $labels.instance }} has {{ $value | humanizePercentage }} left",
        "A broker with a full disk rejects records until there is space again; it loses nothing.",
        "Shorten the retention of large topics (tidemill_log_bytes), move replicas away, or enlarge the disk.",
    ),
    Alert(
        "TidemillDiskFull",
        "min by (cluster, instance) (tidemill_disk_free_bytes / tidemill_disk_size_bytes) < 0.05",
        "1m",
        "critical",
        "The disk of {{ $labels.instance }} has {{ $value | humanizePercentage }} left",
        "A broker with a full disk rejects records until there is space again; it loses nothing.",
        "Shorten the retention of large topics now: tidemill topic alter NAME --config retention.bytes=N.",
    ),
    Alert(
        "TidemillStorageErrors",
        "sum by (cluster, instance, store) (rate(tidemill_storage_query_errors_total[5m])) > 0",
        "5m",
        "warning",
        "The database {{ $labels.store }} does not answer all queries of {{ $labels.instance }}",
        "What the broker stores there waits or fails.",
        "tidemill_storage_query_errors_total by op and reason says what fails; look at the database.",
    ),
    Alert(
        "TidemillCertificateExpires",
        "min by (cluster, instance, server) (tidemill_certificate_expiry_timestamp_seconds) - time() < 14 * 86400",
        "1h",
        "warning",
        "The certificate of {{ $labels.server }} on {{ $labels.instance }} expires",
        "It is valid for {{ $value | humanizeDuration }}. Clients refuse it afterwards.",
        "Replace the file: the broker reads it again by itself.",
    ),
    Alert(
        "TidemillFsyncSlow",
        "tidemill:fsync_duration_seconds:p99_5m > 0.5",
        "10m",
        "warning",
        "Flushes of {{ $labels.instance }} take {{ $value | humanizeDuration }}",
        "Producers with acks=all wait for the disk.",
        "Look at other load on the disk, and at its health.",
    ),
    Alert(
        "TidemillEventLoopDelayed",
        "tidemill:event_loop_delay_seconds:p99_5m > 0.25",
        "10m",
        "warning",
        "Timers of {{ $labels.instance }} are late by {{ $value | humanizeDuration }}",
        "The broker has more work than one processor can do, so all requests wait.",
        "Compare tidemill_requests_total by api; move leaders to other brokers or add one.",
    ),
    Alert(
        "TidemillPeersMissing",
        'max by (cluster, instance) (tidemill_degraded{reason="peers_missing"}) == 1',
        "1m",
        "warning",
        "{{ $labels.instance }} and other brokers do not reach each other",
        "They are all registered, but some connections between them fail. Replicas may fall behind.",
        "Check the network and the advertised addresses; /health of the broker names the others.",
    ),
    Alert(
        "TidemillBrokerOverloaded",
        'max by (cluster, instance) (tidemill_broker_load_level{level="overloaded"}) == 1',
        "10m",
        "warning",
        "{{ $labels.instance }} is overloaded",
        "New clients are sent to other brokers, and connected ones get hints to move.",
        "/api/v1/cluster shows which measurement is high; add a broker or move leaders away.",
    ),
    Alert(
        "TidemillRequestErrors",
        "tidemill:request_errors:rate5m / tidemill:requests:rate5m > 0.05 and tidemill:requests:rate5m > 1",
        "10m",
        "warning",
        "{{ $value | humanizePercentage }} of the requests to {{ $labels.instance }} fail",
        "Refusals that a protocol expects are not counted.",
        "tidemill_request_errors_total by api and error says which requests, docs/reference/errors.md what they mean.",
    ),
    Alert(
        "TidemillGroupLagGrowing",
        f"tidemill:group_lag_seconds:max{READERS} > 300 and deriv(tidemill:group_lag_records:sum[15m]) > 0",
        "15m",
        "warning",
        "Group {{ $labels.group }} falls behind on {{ $labels.topic }}",
        "The oldest unread record is {{ $value | humanizeDuration }} old, and the number of unread records grows.",
        "Add consumers, up to one for each partition, or use the parallel consumer.",
    ),
    Alert(
        "TidemillGroupStuck",
        f"deriv(tidemill:group_lag_seconds:max{READERS}[15m]) > 0.99 and tidemill:group_lag_records:sum > 0",
        "5m",
        "warning",
        "Group {{ $labels.group }} is stuck on {{ $labels.topic }}",
        "Its oldest unread record has been the same for 15 minutes: the group commits nothing there.",
        "tidemill group describe {{ $labels.group }} shows its members; a record may fail again and again.",
    ),
    Alert(
        "TidemillShareGroupWithoutMembers",
        "sum by (cluster, group, topic) (tidemill_share_lag_records) > 0"
        " and on (cluster, group) sum by (cluster, group) (tidemill_group_members) == 0",
        "15m",
        "warning",
        "Share group {{ $labels.group }} has no members, and {{ $value }} records of {{ $labels.topic }} wait",
        "No consumer has been in the group for 15 minutes, so its records are not processed.",
        "Start its consumers, or delete a group that is not needed: tidemill share delete {{ $labels.group }}.",
    ),
    Alert(
        "TidemillShareLocksExpire",
        'sum by (cluster, group, topic) (increase(tidemill_share_delivery_results_total{result="expired"}[15m])) > 0'
        " unless sum by (cluster, group, topic) "
        '(increase(tidemill_share_delivery_results_total{result="accepted"}[15m])) > 0',
        "15m",
        "warning",
        "Share group {{ $labels.group }} accepts nothing from {{ $labels.topic }}, and its locks expire",
        "Members take records and do not acknowledge them in time, so the records are delivered until their limit.",
        "Look for consumers that hang, or set a longer lock: tidemill share configure {{ $labels.group }} --lock 5m.",
    ),
    Alert(
        "TidemillTimelineLate",
        "tidemill:timeline_lateness_seconds:p99_5m > 1",
        "10m",
        "warning",
        "Messages of timeline {{ $labels.timeline }} are late by {{ $value | humanizeDuration }}",
        "99 % of the first deliveries were less late than this.",
        "Add consumers or raise max_in_flight: a timeline is late when all its consumers are busy.",
    ),
    Alert(
        "TidemillTimelinesDegraded",
        'max by (cluster, instance, state) (tidemill_timelines_state{state!="healthy"}) == 1',
        "5m",
        "warning",
        "Timelines of {{ $labels.instance }} are {{ $labels.state }}",
        "Messages may wait: the store does not answer, or a clock is in doubt.",
        "/health on the broker has the reasons.",
    ),
    Alert(
        "TidemillDeadLetters",
        'sum by (cluster, timeline) (increase(tidemill_timeline_messages_total{op="dead"}[15m])) > 0',
        "0m",
        "warning",
        "Timeline {{ $labels.timeline }} has new dead letters",
        "Consumers failed on {{ $value | humanize }} messages as often as max_attempts allows.",
        "Read them (tidemill timeline list, or the dead-letter topic), fix the consumer, schedule them again.",
    ),
    Alert(
        "TidemillTimelineIndexBehind",
        "min by (cluster, instance, partition) (min_over_time(tidemill_timeline_index_lag_entries[10m])) > 1000",
        "5m",
        "warning",
        "The timelines of {{ $labels.instance }} are {{ $value | humanize }} entries behind in partition"
        " {{ $labels.partition }}",
        "Its index has not caught up with the journal for 15 minutes. A failover to this broker would take long.",
        "Look for timeline_index_failed in its log (/logs), and at its processor and disk.",
    ),
    Alert(
        "TidemillPipelineStopped",
        'max by (cluster, pipeline, state) (tidemill_pipeline_state{state=~"failed|stale"}) == 1',
        "1m",
        "critical",
        "Pipeline {{ $labels.pipeline }} is {{ $labels.state }}",
        "It has ended with an error, or its process has sent no report for a minute. Its topics are not read any more.",
        "The page /pipelines of the console has its last error; run it again to continue: tidemill pipeline run.",
    ),
    Alert(
        "TidemillPipelineQueryFailed",
        "max by (cluster, pipeline, query) (tidemill_pipeline_query_failed) == 1",
        "1m",
        "warning",
        "Query {{ $labels.query }} of pipeline {{ $labels.pipeline }} has failed",
        "Other queries of the pipeline may still run.",
        "The page /pipelines of the console has its last error.",
    ),
    Alert(
        "TidemillPipelineLagGrowing",
        "min_over_time(tidemill:pipeline_lag_records:max[15m]) > 0"
        " and deriv(tidemill:pipeline_lag_records:max[15m]) > 0",
        "15m",
        "warning",
        "Query {{ $labels.query }} of pipeline {{ $labels.pipeline }} falls behind",
        "It has had at least {{ $value | humanize }} unread records for 15 minutes, and their number grows.",
        "Give Spark more cores, add partitions, or find the slow sink: the console shows how long micro-batches take.",
    ),
    Alert(
        "TidemillTasksFailing",
        "sum by (cluster, instance, task) (increase(tidemill_task_restarts_total[15m])) > 3"
        " or sum by (cluster, instance, task) (tidemill_tasks_failing) > 0",
        "5m",
        "warning",
        "Task {{ $labels.task }} of {{ $labels.instance }} fails again and again",
        "A background task ends with an error and is restarted.",
        "The log of the broker has the traceback: event task_failed.",
    ),
    Alert(
        "TidemillClockInDoubt",
        "max by (cluster, instance, reason) (tidemill_clock_in_doubt) == 1",
        "1m",
        "warning",
        "The clock of {{ $labels.instance }} is in doubt: {{ $labels.reason }}",
        "Nothing is deleted by age, and timelines deliver nothing, until the clock is trusted again.",
        "Correct the clock, or confirm it with tidemill cluster clock.",
    ),
    Alert(
        "TidemillOpenFilesHigh",
        f'process_open_fds{{job="{JOB}"}} / process_max_fds{{job="{JOB}"}} > 0.8',
        "10m",
        "warning",
        "{{ $labels.instance }} has opened {{ $value | humanizePercentage }} of its files",
        "Without free file handles it accepts no connections and opens no segments.",
        "Raise LimitNOFILE of the service.",
    ),
)
