"""The demo's source database."""
