"""What a partition decides, without IO."""
