"""One suite per port, run on the twin in memory and on the real edge: a twin that is not held to it proves nothing."""
