"""The functions that numba compiles. They work on plain memory, without Arrow and without objects."""
