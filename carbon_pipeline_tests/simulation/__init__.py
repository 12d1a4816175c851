"""The path of one table on twins of its ports: every fault at every boundary, and random walks, in milliseconds."""
