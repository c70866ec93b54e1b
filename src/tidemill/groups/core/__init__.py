"""What a group decides, without IO."""
