"""The control plane on real PostgreSQL: its own rules, the ledger, the directory."""
