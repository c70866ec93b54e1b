"""Sizes in Spark's notation."""

import pytest

from tidemill.pipelines.errors import WrongOption
from tidemill.pipelines.source.core.options import parse_source

SERVERS = {"kafka.bootstrap.servers": "h:9092"}


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("100000000", 10**8), ("512m", 2**29), ("1G", 2**30), ("16 KiB", 2**14), ("2gb", 2**31), ("1t", 2**40)],
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert parse_source({**SERVERS, "subscribe": "a", "maxBytesPerTrigger": text}, streaming=True).max_bytes == size


@pytest.mark.parametrize("text", ["", "0", "0m", "-1", "1.5g", "m", "512x", "512 m b", "9999999t", "\u0661m"])
def test_an_invalid_size_is_rejected(text: str) -> None:
    with pytest.raises(
        WrongOption, match=r"^maxBytesPerTrigger: .* is not a size above 0 such as 1000000, 512m or 1g$"
    ):
        parse_source({**SERVERS, "subscribe": "a", "maxBytesPerTrigger": text}, streaming=True)
