"""Queries by DuckDB, in memory, over a snapshot's own files and nothing else."""
