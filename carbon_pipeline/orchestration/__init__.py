"""Dagster's side: one partitioned asset per credential, the jobs over its tables, and what is told about each write."""
