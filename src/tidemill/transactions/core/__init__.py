"""What a transaction decides, without IO."""
