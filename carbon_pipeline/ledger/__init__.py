"""The ledger: every intended write is on record before a byte of it exists, and its end is on record after."""
