"""Sealing secrets: a keyring, and AES-256-GCM bound to where the secret belongs."""
