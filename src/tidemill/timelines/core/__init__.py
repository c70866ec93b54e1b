"""What a timeline decides, without IO."""
