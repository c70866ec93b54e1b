"""Reads the metrics of a broker as a Prometheus server does."""

import httpx
from prometheus_client.parser import text_string_to_metric_families

WAIT_S = 30.0


def samples(text: str | bytes) -> dict[str, float]:
    """The value of each line by `name{label="value"}`: labels in the order of the alphabet, without the cluster."""
    found = {}
    for family in text_string_to_metric_families(text.decode() if isinstance(text, bytes) else text):
        for sample in family.samples:
            labels = sorted((name, value) for name, value in sample.labels.items() if name != "cluster")
            pairs = ",".join(f'{name}="{value}"' for name, value in labels)
            found[sample.name + (f"{{{pairs}}}" if pairs else "")] = sample.value
    return found


def scraped(http: str, query: str = "") -> dict[str, float]:
    """The metrics of the broker at this HTTP address."""
    return samples(httpx.get(f"{http}/metrics{query}", timeout=WAIT_S).raise_for_status().text)
