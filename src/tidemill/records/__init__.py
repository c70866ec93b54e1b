"""Record batches: seen through their header, built, read, compressed."""
