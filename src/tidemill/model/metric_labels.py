"""Labels that the operator adds to every metric: how their text is read and what is refused.

A name that a metric uses itself is refused, because a line of the exposition must not have a label twice.
"""

import re

from tidemill.model.errors import InvalidConfig
from tidemill.model.metrics import Labels

CLUSTER = "cluster"
"""The label with the id of the cluster, which every metric has."""
LABELS_MAX = 16
NAME_CHARS_MAX = 64
VALUE_CHARS_MAX = 128
USED_NAMES = frozenset(
    {
        CLUSTER,
        *("api", "error", "follower", "generation", "group", "job", "kind", "le", "op", "operation", "partition"),
        *("direction", "filter", "implementation", "major", "minor", "partner", "patchlevel", "python", "query"),
        *("quantile", "quota", "reason", "server", "sink", "state", "target", "task", "timeline", "topic", "type"),
        *("pipeline", "store", "version", "instance", "within", "level", "result", "broker", "attempt"),
    }
)
"""Names of labels that metrics have, or that Prometheus adds (`job`, `instance`)."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def parse_labels(text: str) -> Labels:
    """Read `env=prod,team=mail`; InvalidConfig says what is wrong."""
    pairs = [part.strip() for part in text.split(",") if part.strip()]
    if len(pairs) > LABELS_MAX:
        raise InvalidConfig(f"{len(pairs)} labels are too many; give at most {LABELS_MAX}")
    labels: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals:
            raise InvalidConfig(f"{pair[:NAME_CHARS_MAX]!r} is not name=value; write env=prod,team=mail")
        _check_name(name)
        _check_value(name, value)
        if name in labels:
            raise InvalidConfig(f"label {name} is given twice; keep one of them")
        labels[name] = value
    return tuple(labels.items())


def _check_name(name: str) -> None:
    if len(name) > NAME_CHARS_MAX or not _NAME.fullmatch(name):
        raise InvalidConfig(
            f"{name[:NAME_CHARS_MAX]!r} is not a label name; use letters, digits and _, at most {NAME_CHARS_MAX}"
        )
    if name.startswith("__"):
        raise InvalidConfig(f"label {name} is reserved: Prometheus uses names that begin with __ itself")
    if name in USED_NAMES:
        raise InvalidConfig(f"label {name} is used by metrics of the broker; choose another name, such as my_{name}")


def _check_value(name: str, value: str) -> None:
    if not 0 < len(value) <= VALUE_CHARS_MAX:
        raise InvalidConfig(f"the value of label {name} must have 1 to {VALUE_CHARS_MAX} characters")
    if not value.isprintable():
        raise InvalidConfig(f"the value of label {name} has characters that cannot be printed; remove them")
