"""The node: introduces the concepts to each other."""
