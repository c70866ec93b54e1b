"""The decisions of a partition, without I/O."""
