"""The table of states."""
