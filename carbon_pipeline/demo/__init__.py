"""The demo's source: a real database about real flights, filled from an installed package."""
