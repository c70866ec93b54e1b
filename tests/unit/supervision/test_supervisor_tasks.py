"""No task runs unwatched: a task is started by the supervisor, or it is on this list with the reason why not.

A task that ends with an error which nothing reads is silent: what it did is not done any more, and health stays green.
"""

import re
from pathlib import Path

SOURCE = Path(__file__).parents[3] / "src" / "tidemill"
STARTERS = re.compile(r"\b(?:create_task|ensure_future|Thread|run_coroutine_threadsafe|TaskGroup)\(")

AWAITED = "its caller waits for it and gets its error"
ANSWERS = "runs while there is work; every error is answered to the callers that wait"
CLIENT = "runs in a client's process; an unexpected error is raised by the next call"
COMMAND = "runs in a command, which ends with it"

WATCHED = {
    "supervision/supervisor.py": (2, "the supervisor itself"),
    "app/lazy_sql.py": (1, AWAITED),
    "app/node.py": (1, AWAITED),
    "app/otlp/export_thread.py": (1, "each caller gets the result or the error of its function"),
    "app/thread.py": (2, "the broker of a test; a start that fails is raised by `start`"),
    "broker/deletions.py": (1, "its end is looked at in `_done`, and maintenance starts it again"),
    "coordinator/journal.py": (1, AWAITED),
    "coordinator/timeline_journal.py": (1, "its caller waits for a while, and then treats the outcome as unknown"),
    "replication/replica_fetcher.py": (2, AWAITED),
    "scheduling/replicated_store.py": (2, AWAITED),
    "scheduling/scheduler.py": (1, AWAITED),
    "sql/rows.py": (1, AWAITED),
    "broker/group_lag.py": (2, "the caller gets its error; an error between scrapes is raised by the next one"),
    "broker/prometheus.py": (1, AWAITED),
    "broker/manifest.py": (1, "logs a failed write; the next change writes it again"),
    "broker/topic_directories.py": (1, "files of deleted topics; the next start removes what is left"),
    "broker/topics.py": (1, AWAITED),
    "cli/demo/orders.py": (1, COMMAND),
    "cli/demo/pipeline.py": (2, COMMAND),
    "cli/demo/reminders.py": (3, COMMAND),
    "cli/demo/revenue.py": (1, COMMAND),
    "cli/timeline_work.py": (1, COMMAND),
    "client/background.py": (5, CLIENT),
    "client/parallel/processes.py": (1, CLIENT),
    "client/parallel/workers.py": (3, CLIENT),
    "client/timelines/worker.py": (3, CLIENT),
    "client/topics/consumer.py": (3, CLIENT),
    "client/topics/producer.py": (2, CLIENT),
    "cluster/etcd/session.py": (1, "no error ends it before the session is over, and then the broker joins again"),
    "cluster/local.py": (1, AWAITED),
    "cluster/metadata.py": (1, "the loop that started it raises its error"),
    "servers/http/connection_acceptor.py": (
        1,
        "one handshake; the protocol handles every error but those of the socket",
    ),
    "servers/http/api/event_stream.py": (4, AWAITED),
    "servers/http/api/shared_answers.py": (1, AWAITED),
    "servers/http/api/sql.py": (2, AWAITED),
    "servers/http/server.py": (1, AWAITED),
    "servers/grpc/broker_service.py": (2, AWAITED),
    "servers/grpc/timeline_relay.py": (1, "ends with its stream; its result refuses the call"),
    "servers/grpc/work_stream.py": (1, "an error of any of them ends the stream of its consumer"),
    "servers/kafka/acceptor.py": (1, "one connection; a callback handles its end"),
    "servers/kafka/connection.py": (2, "one request; every error is answered"),
    "servers/kafka/produce.py": (2, AWAITED),
    "groups/writer.py": (1, ANSWERS),
    "pipelines/run/report_uplink.py": (1, "catches every error: a pipeline runs whether its reports arrive or not"),
    "pipelines/topic/sending.py": (1, "runs in a Spark task, which raises its error"),
    "query_engine/error_output.py": (1, "reads what a process writes until it ends"),
    "query_engine/process.py": (
        3,
        "of one query: its caller waits for the thread, and cancels the memory watch; one reaps",
    ),
    "shares/live_partition.py": (1, ANSWERS),
    "streams/clickhouse/committer.py": (1, ANSWERS),
    "streams/clickhouse/engine.py": (1, "logs every error of a server; the next call looks again"),
    "streams/clickhouse/range_failover.py": (1, "the next call that fails starts it again"),
    "streams/clickhouse/batcher.py": (1, ANSWERS),
    "streams/flusher.py": (1, ANSWERS),
    "streams/leader_replication.py": (1, "logs every error; the replicas' tick proposes again"),
    "streams/reservation.py": (1, "batches that need the step wait for it and get its error"),
    "streams/maintenance.py": (2, "awaited by its caller; an error of a compaction is raised by the next maintenance"),
    "streams/writer.py": (1, ANSWERS),
    "testing/child.py": (2, "in the process of a test"),
    "timelines/backlog.py": (
        1,
        "logs a failed count; the next question counts again",
    ),
    "timelines/postgres/sort.py": (1, "logs every error; the next pass tries again"),
    "timelines/sqlite/index.py": (1, AWAITED),
    "timelines/sqlite/sweep.py": (1, "a failure loses nothing: the next look begins again"),
    "timelines/sqlite/writer.py": (2, ANSWERS),
    "transactions/coordinator.py": (1, AWAITED),
}


def test_every_task_is_watched() -> None:
    found = {str(path.relative_to(SOURCE)): _starts(path) for path in sorted(SOURCE.rglob("*.py"))}
    new = {name: count for name, count in found.items() if count > WATCHED.get(name, (0, ""))[0]}
    assert new == {}, "start loops with Supervisor.keep and jobs with Supervisor.spawn, or say here why not"


def _starts(path: Path) -> int:
    return len(STARTERS.findall(path.read_text()))
