"""Coordination on etcd, for brokers on several machines."""

from tidemill.cluster.etcd.coordination import EtcdCoordination
from tidemill.cluster.etcd.url import parse

__all__ = ["EtcdCoordination", "parse"]
