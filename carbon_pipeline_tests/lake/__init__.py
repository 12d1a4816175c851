"""The lake on Iceberg: writing, committing, fencing, reading back."""
