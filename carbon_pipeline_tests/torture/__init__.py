"""The path of one table on real parts: processes that are killed and stopped, a real PostgreSQL, a real catalog."""
