"""What each column becomes: PostgreSQL type → base type → Iceberg type, with a receipt."""
