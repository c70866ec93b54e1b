"""Spark masters and their addresses."""

from tidemill.pipelines.run.core.master import check_master, places_of
from tidemill.pipelines.spark.remote import Where, check_where


def test_masters_and_where_they_are() -> None:
    for master in ("local", "local[4]", "local[*]", "local[2,3]", "local-cluster[2,1,1024]"):
        check_where(Where(master))
        assert places_of(master) == []
    check_master("yarn", {"YARN_CONF_DIR": "/etc/hadoop"})
    assert places_of("yarn") == []
    assert places_of("spark://a:1,b:2") == [("a", 1), ("b", 2)]
    assert places_of("k8s://https://a:6443") == [("a", 6443)]
    assert places_of("k8s://a") == [("a", 443)]
    assert places_of("k8s://http://a") == [("a", 80)]
    assert places_of("k8s://https://a:port") == []
    assert places_of("sc://a") == [("a", 15002)]
    assert places_of("sc://a:1/;use_ssl=true") == [("a", 1)]
