"""A probe of an unreachable server."""

from tidemill.streams.clickhouse import visit


def test_a_missing_server_is_reported_without_the_password() -> None:
    (found,) = visit("clickhouse://me:geheim@127.0.0.1:1/shop")
    assert found.problem.startswith("ClickHouse at 127.0.0.1:1 cannot be reached")
    assert "geheim" not in found.problem
