"""Whether source and lake hold the same rows: what is counted and summed on both sides, and how they compare."""
