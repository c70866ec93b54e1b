"""The decisions of consumer groups, without IO."""
