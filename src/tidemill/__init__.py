"""Tidemill: Kafka-compatible streams, timelines and data pipelines in one package.

Each public name is imported at its first use, so that `import tidemill` stays quick.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidemill.client.parallel.consumer import ParallelConsumer
    from tidemill.client.parallel.options import Halted, Retry
    from tidemill.client.timelines import AsyncLease, AsyncTimeline, Lease, Message, RecurrenceRule, Timeline
    from tidemill.client.topics import AsyncConsumer, AsyncTopicProducer, Consumer, DeliveryFailed, TopicProducer
    from tidemill.model.errors import TidemillError
    from tidemill.model.timeline_errors import StaleLease, TimelineError

__version__ = "0.1.0"

__all__ = [
    "AsyncConsumer",
    "AsyncLease",
    "AsyncTimeline",
    "AsyncTopicProducer",
    "Consumer",
    "DeliveryFailed",
    "Halted",
    "Lease",
    "Message",
    "ParallelConsumer",
    "RecurrenceRule",
    "Retry",
    "StaleLease",
    "TidemillError",
    "Timeline",
    "TimelineError",
    "TopicProducer",
    "__version__",
]

_MODULES = {
    "AsyncConsumer": "tidemill.client.topics",
    "AsyncLease": "tidemill.client.timelines",
    "AsyncTimeline": "tidemill.client.timelines",
    "AsyncTopicProducer": "tidemill.client.topics",
    "Consumer": "tidemill.client.topics",
    "DeliveryFailed": "tidemill.client.topics",
    "Halted": "tidemill.client.parallel.options",
    "Lease": "tidemill.client.timelines",
    "Message": "tidemill.client.timelines",
    "ParallelConsumer": "tidemill.client.parallel.consumer",
    "RecurrenceRule": "tidemill.client.timelines",
    "Retry": "tidemill.client.parallel.options",
    "StaleLease": "tidemill.model.timeline_errors",
    "TidemillError": "tidemill.model.errors",
    "Timeline": "tidemill.client.timelines",
    "TimelineError": "tidemill.model.timeline_errors",
    "TopicProducer": "tidemill.client.topics",
}
"""Public name -> the module that defines it."""


if not TYPE_CHECKING:  # type checkers use the imports above and must reject other names

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'tidemill' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
        return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
