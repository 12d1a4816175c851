"""Tests of PostgreSQL as a source, on a real one. PostgreSQL is the oracle for every value."""
