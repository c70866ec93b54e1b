"""Early ends of connections: in all for metrics, and news for the log."""

from tidemill.servers.kafka.connection_events import ConnectionEvents, EarlyEnd


def test_new_events_are_reported_once_and_metrics_count_all() -> None:
    events = ConnectionEvents()
    events.count(EarlyEnd.REFUSED)
    events.count(EarlyEnd.REFUSED)
    assert events.news(EarlyEnd.REFUSED) == 2
    assert events.news(EarlyEnd.REFUSED) == 0
    events.count(EarlyEnd.REFUSED)
    assert events.news(EarlyEnd.REFUSED) == 1
    assert events.news(EarlyEnd.SLOW) == 0
    assert {dict(each.labels)["reason"]: each.value for each in events.readings()} == {
        "refused": 3,
        "slow": 0,
        "handshake failed": 0,
        "not authenticated": 0,
        "invalid request or login": 0,
    }
