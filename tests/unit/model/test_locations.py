"""Locations: local paths and file URLs are taken, everything with another scheme is refused."""

import pytest

from tidemill.model.locations import UnsupportedLocation, local_path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("lake", "lake"),
        ("lake/", "lake/"),
        (".", "."),
        ("..", ".."),
        ("/srv/lake", "/srv/lake"),
        ("/srv/s3://x", "/srv/s3://x"),
        ("./a:b", "./a:b"),
        ("./s3://a", "./s3://a"),
        ("../c:x", "../c:x"),
        ("2026-11-18T10:00/lake", "2026-11-18T10:00/lake"),
        ("lake/a:b", "lake/a:b"),
        ("file:///srv/lake", "/srv/lake"),
        ("FILE:///srv/lake", "/srv/lake"),
        ("file:/srv/lake", "/srv/lake"),
        ("file://localhost/srv/my%20lake", "/srv/my lake"),
    ],
)
def test_local_paths_and_file_urls_are_taken(text: str, path: str) -> None:
    assert local_path(text) == path


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/lake",
        "S3://bucket/lake",
        "S3:/bucket",
        "s3a://bucket",
        "gs://bucket",
        "hdfs://name:8020/lake",
        "abfss://box@account.dfs.core.windows.net/lake",
        "http://host/lake",
        " s3://bucket/lake",
        "a:b",
        "c:",
        "C:\\lake",
        "c:/lake",
        "file:",
        "file:lake",
        "file://host/lake",
        "file:///lake?x=1",
        "file:///a%00b",
        "my_store://x",
        "lake/s3://x",
        "://x",
        "${LAKE}/orders",
        "$LAKE/orders",
        "~/lake",
        "",
        "  ",
        "a\0b",
    ],
)
def test_an_unsupported_location_is_rejected_in_one_line(text: str) -> None:
    with pytest.raises(UnsupportedLocation, match=r"write a local path, or file:///path") as caught:
        local_path(text)
    assert "\n" not in str(caught.value)
