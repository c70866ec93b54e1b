"""The features that ApiVersions lists."""

from tidemill.servers.kafka.api_table import standard_table


def test_the_features_that_clients_look_for() -> None:
    router = standard_table()
    assert ("group.version", 0, 1, 1) in router.features
