"""Values of settings with a unit."""

import pytest

from tidemill.model.topic_settings import INT64_MAX
from tidemill.servers.http.console.setting_values import readable_value


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("retention.ms", "604800000", "7 d"),
        ("retention.ms", "-1", "unlimited"),
        ("retention.bytes", "-1", "unlimited"),
        ("flush.messages", str(INT64_MAX), "unlimited"),
        ("segment.bytes", "1073741824", "1.0 GiB"),
        ("retention.ms", "-2", ""),
        ("retention.ms", "<b>", ""),
        ("retention.ms", "²", ""),
        ("retention.ms", None, ""),
        ("retention.ms", "", ""),
        ("min.insync.replicas", "2", ""),
        ("cleanup.policy", "delete", ""),
    ],
)
def test_a_duration_or_a_size_has_a_unit(name: str, value: str | None, text: str) -> None:
    assert readable_value(name, value) == text
