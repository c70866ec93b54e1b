"""The decisions of a timeline, without IO."""
