"""The decisions of the cluster, without IO."""
