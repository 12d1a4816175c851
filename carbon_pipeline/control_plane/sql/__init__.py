"""The control plane in PostgreSQL: tables and their rules, the ledger, and the directory of tenants and datasets."""
