"""Where a relation's rows go: a credential's destination, a dataset's coordinate, and the names that follow."""
