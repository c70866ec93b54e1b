"""The short version of the soak (`make chaos`): each fault once, and the leader killed three times."""

import pytest
from tests.chaos.run import check, run

FAULTS = (
    "leader killed",
    "leader cut from etcd",
    "leader killed",
    "leader paused",
    "leader cut from followers",
    "etcd leader killed",
    "leader cut one way",
    "rolling restart",
    "all brokers killed",
    "disk full",
    "power cut of all",
    "disk dead",
    "leader killed",
)


@pytest.mark.timeout(240)
def test_acknowledged_records_are_not_lost_or_doubled_by_faults_of_one_broker() -> None:
    report = run(seed=7, faults=FAULTS)
    print("\n".join(report.lines()))
    check(report)
    assert report.faults["leader killed"] == 3
