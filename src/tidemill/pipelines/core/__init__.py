"""What a pipeline decides without asking anybody: options, positions, ranges of offsets, marks of written batches."""
