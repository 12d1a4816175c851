"""Where a relation's rows go: the destination of a credential, the coordinate of a dataset, and what they are called."""
