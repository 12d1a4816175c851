"""Alembic's migrations of the control plane, run by `migrate`."""
