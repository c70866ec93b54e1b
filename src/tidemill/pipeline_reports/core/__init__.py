"""Decides about reports without IO."""
