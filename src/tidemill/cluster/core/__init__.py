"""What the cluster decides, without IO."""
