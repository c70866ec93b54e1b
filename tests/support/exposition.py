"""The metrics of real brokers: which names they have, and which labels each name."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import httpx
from prometheus_client.parser import text_string_to_metric_families

TARGET_LABELS = frozenset({"job", "instance"})
"""Labels that Prometheus adds to every series."""


def exposition_of(addresses: Iterable[str], *, detail: bool = False) -> Mapping[str, frozenset[str]]:
    """The labels of each metric of these HTTP servers, by the name of its series."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for address in addresses:
        url = f"http://{address.removeprefix('http://')}/metrics{'?detail=partition' if detail else ''}"
        for family in text_string_to_metric_families(httpx.get(url, timeout=30).text):
            for sample in family.samples:
                found[sample.name] |= sample.labels.keys()
    return {name: frozenset(labels) for name, labels in found.items()}
