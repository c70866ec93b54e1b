"""What numba compiles: plain functions over memory, without Arrow and without objects."""
