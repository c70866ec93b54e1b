"""The decisions of security, without IO."""
