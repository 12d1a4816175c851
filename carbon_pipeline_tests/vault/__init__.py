"""Sealing: keyring, seal and key file."""
