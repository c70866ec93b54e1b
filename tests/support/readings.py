"""Metrics as values by name and labels, without the text in between."""

from collections.abc import Iterable

from tidemill.model.metrics import Histogram, HistogramReading, MetricReading


def values_of(readings: Iterable[MetricReading]) -> dict[str, float]:
    """The value of each counter and gauge by `name{label="value"}`; of a histogram, the number of its values."""
    found: dict[str, float] = {}
    for one in readings:
        pairs = ",".join(f'{name}="{value}"' for name, value in one.labels)
        key = one.name + (f"{{{pairs}}}" if pairs else "")
        assert key not in found, f"{key} is reported twice"
        found[key] = one.histogram.count if isinstance(one, HistogramReading) else one.value
    return found


def histogram_of(readings: Iterable[MetricReading], name: str, **labels: str) -> Histogram:
    """The histogram with these labels."""
    (found,) = (one for one in readings if one.name == name and dict(one.labels) == labels)
    assert isinstance(found, HistogramReading)
    return found.histogram
