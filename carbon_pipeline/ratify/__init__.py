"""Settling operations whose writer did not: observe the catalog, decide by proof, act once."""
