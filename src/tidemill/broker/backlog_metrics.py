"""The metrics of messages that are in the timelines: available, leased, and waiting. Autoscalers need the first.

Brokers that share a store report the same numbers: take the maximum over the brokers, not the sum. The scheduled
records of a topic can be added up: in a shared store only the leader of its first partition reports them.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from itertools import accumulate

from tidemill.model.metrics import Gauge, MetricReading
from tidemill.timelines.core.backlog import EMPTY, Backlog
from tidemill.timelines.core.timeline import SCHEDULE, WAITING_PREFIX, TimelineState
from tidemill.timelines.dispatcher import Dispatcher

WITHIN = ("1s", "10s", "1m", "10m", "1h", "1d", "any")
"""The upper ends of the windows. The label is not `le`, which only histograms may have, and these counts fall again."""


def backlog_readings(
    dispatcher: Dispatcher, leads: Callable[[str], bool]
) -> Callable[[bool], Awaitable[Iterable[MetricReading]]]:
    """What is in the timelines, counted when it is requested and old.

    `leads` says whether this broker leads the first partition of a topic.
    """

    async def snapshot(_: bool) -> Iterable[MetricReading]:
        count = await dispatcher.backlog()
        if count is None:
            return ()
        usable = {each.name for each in dispatcher.timelines() if each.state is TimelineState.READY}
        by_label: dict[str, Backlog] = {}
        for name, backlog in sorted(count.by_name.items()):
            if name in usable:  # it may have been deleted since
                label = dispatcher.stats.label_of(name)
                by_label[label] = _sum(by_label.get(label, EMPTY), backlog)
        age_s = (dispatcher.clock.now_ms() - count.at_ms) / 1_000
        return _readings(by_label, age_s, leads if dispatcher.is_shared else lambda _: True)

    return snapshot


def _sum(one: Backlog, other: Backlog) -> Backlog:
    waiting = tuple(first + second for first, second in zip(one.waiting, other.waiting, strict=True))
    return Backlog(one.available + other.available, one.leased + other.leased, waiting)


def _readings(by_label: Mapping[str, Backlog], age_s: float, reports: Callable[[str], bool]) -> Iterator[MetricReading]:
    yield Gauge("tidemill_timeline_backlog_age_seconds", "Age of the counts of messages in timelines.", age_s)
    for name, backlog in sorted(by_label.items()):
        label = ("timeline", name)
        yield Gauge(
            "tidemill_timeline_available_messages",
            "Messages that are due and not leased; at most 1000000 are counted.",
            backlog.available,
            (label,),
        )
        yield Gauge(
            "tidemill_timeline_active_leases", "Messages under a live lease, at any broker.", backlog.leased, (label,)
        )
        for within, count in zip(WITHIN, accumulate(backlog.waiting), strict=True):
            yield Gauge(
                "tidemill_timeline_waiting_messages",
                "Messages that become due within a time, with those of shorter times; at most 1000000 are counted.",
                count,
                (label, ("within", within)),
            )
    yield from _of_topics(by_label, reports)


def _of_topics(by_label: Mapping[str, Backlog], reports: Callable[[str], bool]) -> Iterator[MetricReading]:
    """The scheduled records of a topic wait on one of two timelines of its name."""
    by_topic: dict[str, Backlog] = {}
    for name, backlog in sorted(by_label.items()):
        prefix = next((each for each in (SCHEDULE, WAITING_PREFIX) if name.startswith(each)), None)
        if prefix is not None:
            topic = name.removeprefix(prefix)
            by_topic[topic] = _sum(by_topic.get(topic, EMPTY), backlog)
    for topic, backlog in by_topic.items():
        if not reports(topic):
            continue
        label = ("topic", topic)
        yield Gauge(
            "tidemill_scheduled_records_waiting",
            "Scheduled records that are not due.",
            sum(backlog.waiting),
            (label,),
        )
        yield Gauge(
            "tidemill_scheduled_records_late",
            "Scheduled records that are due and not being delivered.",
            backlog.available,
            (label,),
        )
