"""Behaviour of the embedded PostgreSQL server, on real servers."""
